"""Attempts in a journey: their members, how they ended and when, and which one was told to stop."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.trace import SpanContext

from libs.journey import Row, follow, rows, waterfall
from tests.unit.journey import stories
from tests.unit.journey.scribe import JOB, Stack, Writer, at

STARTED = "process attempts.v1.started.{node}"
EXITED = "process attempts.v1.exited.{node}"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    stack.end()


def told(stack: Stack) -> list[Row]:
    return rows(follow(stack.folder, JOB, at(1000)))


def runs(stack: Stack) -> list[tuple[str, str, float]]:
    """Words, node and length in seconds of the runs."""
    found = [row for row in told(stack) if row.words.startswith("run attempt")]
    return [(waterfall.told(row), row.node, round(row.duration_ms / 1000, 3)) for row in found]


def started(
    scheduler: Writer, life: SpanContext, start: float, *, attempt: int = 1, node: str = "node-1", message: str = "a"
) -> None:
    scheduler.span(STARTED, start, parent=life, job=JOB, attempt=attempt, node=node, message=message)


def ran(
    agent: Writer, life: SpanContext, start: float, length: float, *, member: int, cause: str = "completed"
) -> None:
    agent.span("run attempt", start, length, parent=life, job=JOB, attempt=1, member=member, cause=cause)


def test_a_gangs_runs_name_their_members(stack: Stack) -> None:
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for member, message in enumerate("ab"):
        started(scheduler, life, 2, message=message)
        ran(agent, life, 2 + member / 10, 3, member=member)
    assert runs(stack) == [("run attempt 1, member 0", "node-1", 3), ("run attempt 1, member 1", "node-1", 3)]


def test_after_a_kill_of_both_shims_each_member_was_killed(stack: Stack) -> None:
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for member, message in enumerate("ab"):
        started(scheduler, life, 2, message=message)
        ran(agent, life, 2 + member / 10, 3, member=member, cause="killed")
    assert [words for words, _, _ in runs(stack)] == [
        "run attempt 1, member 0 [killed]",
        "run attempt 1, member 1 [killed]",
    ]


def test_each_member_of_a_killed_node_has_a_row(stack: Stack) -> None:
    """A message that comes again, or is told of by two services, is no other member."""
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for message in "abb":
        started(scheduler, life, 2, message=message)
    started(scheduler, life, 2, node="node-2", message="c")
    agent.span("measure usage", 4, 0.5, links=[life])
    agent.kill()
    scheduler.span("lose attempt", 9, parent=life, job=JOB)
    killed = "run attempt 1 [killed]"
    assert runs(stack) == [(killed, "node-2", 7), (killed, "node-1", 2.5), (killed, "node-1", 2.5)]


def test_of_two_members_on_a_node_one_may_still_run(stack: Stack) -> None:
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for member in (0, 1):
        message = f"m{member}"
        scheduler.span(STARTED, 2, parent=life, job=JOB, attempt=1, node="node-1", message=message, member=member)
    ran(agent, life, 2, 3, member=1, cause="hung")
    assert [words for words, _, _ in runs(stack)] == [
        "run attempt 1, member 0 [running]",
        "run attempt 1, member 1 [hung]",
    ]


def test_an_attempt_ends_with_the_last_of_the_agents_that_were_killed_under_it(stack: Stack) -> None:
    """Its first agent was killed alone and another took over; what came after the loss is no sign of it."""
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    started(scheduler, life, 2)
    for pid, last in ((7, 4), (8, 6), (9, 20)):
        agent = stack.writer("agent", "node-1", pid)
        agent.span("measure usage", last, 0, links=[life])
        agent.kill()
    scheduler.span("lose attempt", 9, parent=life, job=JOB)
    started(scheduler, life, 10, attempt=2, node="node-2")
    assert runs(stack)[0] == ("run attempt 1 [killed]", "node-1", 4)


def test_a_node_that_came_back_before_it_was_lost(stack: Stack) -> None:
    """Its next agent tells of an end that nobody saw: the attempt is over, no other has begun."""
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    started(scheduler, life, 2)
    agent.span("measure usage", 4, 0, links=[life])
    agent.kill()
    scheduler.span(EXITED, 8, parent=life, job=JOB, attempt=1, node="node-1", message="x")
    assert runs(stack) == [("run attempt 1 [killed]", "node-1", 2)]


def test_a_lost_attempt_is_over_before_another_begins(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    started(scheduler, life, 2)
    scheduler.span("lose attempt", 9, parent=life, job=JOB)
    assert runs(stack) == [("run attempt 1 [killed]", "node-1", 7)]


def test_a_stop_names_the_attempt_that_its_agent_knew_or_that_came_to_the_node_last(stack: Stack) -> None:
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    scheduler.span("publish work.v1.stop.{node}", 1.5, parent=life, node="node-1", message="early")
    for attempt, start in ((1, 2), (2, 5)):
        agent.span("process work.v1.run.{node}", start, parent=life, job=JOB, attempt=attempt, message=f"run-{attempt}")
    scheduler.span("publish work.v1.stop.{node}", 6, parent=life, node="node-1", message="unheard")
    heard = scheduler.span("publish work.v1.stop.{node}", 7, parent=life, node="node-1", message="heard")
    agent.span("process work.v1.stop.{node}", 7.1, parent=heard, job=JOB, attempt=1, message="heard")
    stops = [row.words for row in told(stack) if row.words.startswith("stop")]
    assert stops == ["stop", "stop attempt 2", "stop attempt 1"]
