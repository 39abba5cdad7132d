"""What belongs to a journey, and what a missing parent means."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random  # noqa: TID251 - hypothesis hands it out
from time import perf_counter
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.journey import Journey, NoJourneyError, follow, jobs, rows, waterfall
from libs.journey.span import Span
from tests.unit.journey import stories
from tests.unit.journey.scribe import JOB, OTHER, Stack, Writer, at, outside

LATER = at(1000)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    for writer in stack.writers:
        writer.kill()


def names(spans: tuple[Span, ...]) -> list[str]:
    return sorted(span.name for span in spans)


def read(path: Path) -> Journey:
    return follow(path, JOB, LATER)


def test_the_whole_journey(tmp_path: Path) -> None:
    told = stories.whole(tmp_path)
    journey = read(tmp_path)
    assert journey.trace_id == f"{told.life.trace_id:032x}"
    assert len(journey.services) == 7
    assert names(journey.orphans) == []
    assert names(journey.parent_killed) == ["process attempts.v1.saved.{node}"]
    assert (journey.open, journey.redeliveries, journey.damaged_lines, journey.left_out) == ((), 1, 0, 0)


def test_nothing_of_a_neighbour_is_followed(tmp_path: Path) -> None:
    told = stories.whole(tmp_path)
    alone = read(tmp_path)
    stories.neighbour(tmp_path, told)
    assert read(tmp_path).spans == alone.spans
    theirs = follow(tmp_path, OTHER, LATER)
    assert {"lose attempt", "roll up usage", "place job"} <= {span.name for span in theirs.spans}
    assert "rate usage" not in names(theirs.spans), "the first tenant's invoice"
    assert "commit checkpoint" not in names(theirs.spans), "the first job's life"


def test_without_its_submission_a_job_is_where_most_speaks_of_it(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    scheduler.span("place job", 1, job=JOB)
    most = scheduler.span("place job", 2, job=JOB)
    scheduler.span("lose attempt", 3, parent=most, job=JOB)
    assert read(stack.folder).trace_id == f"{most.trace_id:032x}"


def test_the_first_submission_is_the_life_whatever_comes_again(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    submission = "process jobs.v1.submit.{tenant}"
    scheduler.span(submission, 1, job=JOB, outcome="duplicate")
    life = scheduler.span(submission, 2, job=JOB, outcome="done")
    assert read(stack.folder).trace_id == f"{life.trace_id:032x}"


def test_no_such_job(stack: Stack) -> None:
    stories.submit(stack.writer("scheduler"), 1)
    with pytest.raises(NoJourneyError, match=f"no span of job {OTHER} in "):
        follow(stack.folder, OTHER)


def test_jobs_by_the_beginning_of_their_ids(tmp_path: Path) -> None:
    stories.neighbour(tmp_path, stories.whole(tmp_path))
    assert jobs(tmp_path, "01900000") == {JOB, OTHER}
    assert jobs(tmp_path, JOB) == {JOB}


def of_life(writer: Writer, name: str, start: float, **about: Any) -> None:
    """A span in the life of the job, whose parent no file has."""
    life = stories.submit(writer, 1)
    lost = writer.span("never written", start, lost=True, parent=life)
    writer.span(name, start + 0.01, parent=lost, job=JOB, **about)


def test_a_parent_that_is_nowhere_makes_an_orphan(stack: Stack) -> None:
    of_life(stack.writer("scheduler"), "place job", 5)
    stack.end()
    stack.writers.clear()
    journey = read(stack.folder)
    assert names(journey.orphans) == ["place job"]
    assert journey.parent_killed == ()


def test_a_parent_outside_of_farside_is_no_loss(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    stories.submit(scheduler, 1)
    scheduler.span("lose attempt", 2, parent=outside(99), job=JOB)
    assert read(stack.folder).orphans == ()


def test_a_living_process_may_still_be_at_the_parent(stack: Stack) -> None:
    of_life(stack.writer("scheduler"), "place job", 5)
    soon = follow(stack.folder, JOB, at(6))
    assert (names(soon.open), soon.orphans) == (["place job"], ())
    late = follow(stack.folder, JOB, at(60))
    assert (late.open, names(late.orphans)) == ((), ["place job"])


def test_a_killed_process_takes_its_parents_along(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    of_life(scheduler, "place job", 5)
    scheduler.kill()
    journey = read(stack.folder)
    assert (names(journey.parent_killed), journey.orphans) == (["place job"], ())


def test_a_successor_publishes_what_the_killed_one_left(stack: Stack) -> None:
    killed, successor = stack.writer("scheduler"), stack.writer("scheduler", pid=2)
    life = stories.submit(killed, 1)
    lost = killed.span("process attempts.v1.exited.{node}", 5, lost=True, parent=life)
    killed.kill()
    successor.span("publish jobs.v1.finished.{tenant}", 30, parent=lost)
    assert names(read(stack.folder).parent_killed) == ["publish jobs.v1.finished.{tenant}"]


def test_a_killed_agent_explains_only_what_came_from_its_node(stack: Stack) -> None:
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 9)
    life = stories.submit(scheduler, 1)
    agent.span("run attempt", 2, parent=life, job=JOB)
    lost = agent.span("ask call.v1.scheduler.claim.{node}", 5, lost=True, parent=life)
    scheduler.span("answer call.v1.scheduler.claim.{node}", 5, parent=lost, node="node-1")
    scheduler.span("process attempts.v1.ready.{node}", 5, parent=lost, source="/farside/agent/node-1")
    scheduler.span("process attempts.v1.exited.{node}", 5, parent=lost, source="/farside/agent/node-2")
    scheduler.span("process attempts.v1.hung.{node}", 5000, parent=lost, source="/farside/agent/node-1")
    agent.kill()
    journey = follow(stack.folder, JOB, at(6000))
    assert names(journey.parent_killed) == [
        "answer call.v1.scheduler.claim.{node}",
        "process attempts.v1.ready.{node}",
    ]
    assert names(journey.orphans) == ["process attempts.v1.exited.{node}", "process attempts.v1.hung.{node}"]


def test_a_last_line_cut_short_is_no_damage_and_other_damage_is_counted(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    whole = read(tmp_path)
    with (tmp_path / "agent-node-1-11.jsonl").open("ab") as file:
        file.write(b'{"resourceSpans":[{"resource":{"attrib')
    assert read(tmp_path).damaged_lines == 0
    damage = [
        b"no json",
        b"\xff\xfe",
        b"[]",
        b"5",
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}',
        b"[" * 100_000,
    ]
    damage += [
        b'{"resourceSpans":5}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz","spanId":"1"}]}]}]}',
    ]
    (tmp_path / "damaged.jsonl").write_bytes(b"\n".join(damage) + b"\n\n  \n")
    journey = read(tmp_path)
    assert journey.damaged_lines == len(damage)
    assert journey.spans == whole.spans


def test_other_signals_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"resourceMetrics":[]}\n{"resourceLogs":[]}\n')
    assert read(tmp_path).damaged_lines == 0


def documents(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [cast("dict[str, Any]", json.loads(line)) for line in lines]


def test_what_a_collector_writes_reads_the_same(tmp_path: Path) -> None:
    """Many processes in one file: nothing tells then who was killed, so the missing parent is an orphan."""
    apart, together = tmp_path / "apart", tmp_path / "together"
    apart.mkdir()
    together.mkdir()
    stories.whole(apart)
    found = documents(apart)
    half = len(found) // 2
    lines = [{"resourceSpans": [part["resourceSpans"][0] for part in parts]} for parts in (found[:half], found[half:])]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (together / "collected.jsonl").write_text(text.replace('"code": 2', '"code": "STATUS_CODE_ERROR"'))
    first, second = read(apart), read(together)
    assert second.spans == first.spans
    assert names(second.orphans) == ["process attempts.v1.saved.{node}"]


def test_a_span_that_two_files_hold_is_one(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    before = read(tmp_path)
    lines = "".join(json.dumps(document) + "\n" for document in documents(tmp_path))
    (tmp_path / "again.jsonl").write_text(lines)
    assert read(tmp_path).spans == before.spans


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.randoms(use_true_random=False))
def test_the_order_of_files_and_lines_changes_nothing(order: Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, shuffled = tmp_path_factory.mktemp("told"), tmp_path_factory.mktemp("shuffled")
    stories.neighbour(folder, stories.whole(folder))
    files = sorted(folder.glob("*.jsonl"))
    for number, file in zip(order.sample(range(100), len(files)), files, strict=True):
        lines = file.read_text().splitlines(keepends=True)
        order.shuffle(lines)
        (shuffled / f"{number:03}.jsonl").write_text("".join(lines))
    before, after = read(folder), read(shuffled)
    assert after == before
    assert rows(after) == rows(before)


def test_a_big_folder_is_read_in_seconds(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    alone = read(tmp_path)
    line = (tmp_path / "scheduler-1.jsonl").read_text().splitlines(keepends=True)[3]
    before, trace_id, after = line.partition(
        json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"]
    )
    assert trace_id
    with (tmp_path / "noise.jsonl").open("w") as file:
        file.writelines(f"{before}{number + 10**9:032x}{after}" for number in range(100_000))
    began = perf_counter()
    journey = read(tmp_path)
    assert perf_counter() - began < 20
    assert journey.spans == alone.spans
    assert waterfall.lines(rows(journey), 100)


def test_a_service_that_submitted_the_job_took_part_whether_it_writes_spans_or_not(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    scheduler.span("process jobs.v1.submit.{tenant}", 1, job=JOB, source="/farside/cli", stored_at=at(1).isoformat())
    journey = read(stack.folder)
    assert journey.services == ("cli", "scheduler")
    assert {row.service for row in rows(journey)} == {"cli", "scheduler"}


def test_the_process_that_most_likely_had_the_parent_is_named(stack: Stack) -> None:
    """Where the message came from goes before where it was taken, and of several that were killed there the nearest."""
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    for pid, last in ((8, 4), (9, 5)):
        agent = stack.writer("agent", "node-1", pid)
        lost = agent.span("publish attempts.v1.progressed.{node}", last, lost=True, parent=life)
        agent.span("measure usage", last, 0)
        agent.kill()
        source = "/farside/agent/node-1"
        scheduler.span("process attempts.v1.progressed.{node}", last + 0.1, parent=lost, job=JOB, source=source)
    scheduler.kill()
    killed = read(stack.folder).killed
    assert [(process.origin.service, process.origin.pid) for process in killed.values()] == [("agent", 8), ("agent", 9)]
