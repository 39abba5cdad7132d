"""The rows of a journey and how they are drawn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.journey import Row, follow, rows, waterfall
from tests.unit.journey import stories
from tests.unit.journey.scribe import JOB, OTHER, Stack, at

WIDTH = 100
NOW = at(1000)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    stack.end()


def told(stack: Stack, *, everything: bool = False) -> list[Row]:
    return rows(follow(stack.folder, JOB, NOW), everything=everything)


def words(found: list[Row]) -> list[str]:
    return [waterfall.told(row) for row in found]


GOLDEN = """\
 +0.000s   20 ms  notebook                ▏                            submit
 +0.020s   1.0 s  scheduler               █                            accept (x2)
 +1.100s   20 ms  scheduler                ▏                           place
 +1.150s   20 ms  agent (node-1)           ▏                           claim
 +1.200s   3.8 s  agent (node-1)           ▒▒▒▒▒                       run attempt 1 [killed]
 +3.020s   50 ms  checkpoint                 ▏                         checkpoint step 100 committed
 +5.000s  12.3 s  agent (node-1, node-2)        ████████████████       ~ usage windows x 2
 +9.000s   30 ms  inventory (node-1)                 ▏                 ~ node lost
 +9.020s   10 ms  scheduler                          ▏                 requeue
 +9.030s  2.0 ms  alerting                           ▏                 ~ alert fired
 +9.100s   20 ms  scheduler                           ▏                place
 +9.150s   20 ms  agent (node-2)                      ▏                claim
 +9.200s   8.0 s  agent (node-2)                      ███████████      run attempt 2
 +9.300s  400 ms  agent (node-2)                      █                restore step 100
+17.400s   30 ms  scheduler                                      ▏     finish
+20.000s  100 ms  metering                                          ▏  ~ roll-up
+20.200s  200 ms  billing                                           ▏  ~ rate
+20.400s  2.0 ms  billing                                           ▏  ~ invoice
"""


def test_the_whole_journey(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    found = rows(follow(tmp_path, JOB, NOW))
    assert "\n".join(waterfall.lines(found, WIDTH)) + "\n" == GOLDEN


def test_everything_is_a_row_for_each_span(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    journey = follow(tmp_path, JOB, NOW)
    found = rows(journey, everything=True)
    made = [row for row in found if row.spans]
    assert len(made) == len(journey.spans)
    assert "publish usage.v1.measured.{node}" in {row.words for row in made}
    assert [row.words for row in found if not row.spans] == ["submit", "run attempt 1"]


def test_what_is_folded_is_counted_where_it_was_caused(tmp_path: Path) -> None:
    stories.whole(tmp_path)
    by_words = {row.words: row for row in rows(follow(tmp_path, JOB, NOW))}
    windows = by_words["usage windows"]
    assert (windows.count, windows.services, windows.node) == (2, ("agent", "metering"), "node-1, node-2")
    assert windows.spans == 6
    finish = by_words["finish"]
    assert finish.services == ("alerting", "checkpoint", "scheduler")
    assert finish.duration_ms == 30, "until the last one had it"
    assert {row.words for row in by_words.values() if row.linked} == {
        "usage windows",
        "node lost",
        "alert fired",
        "roll-up",
        "rate",
        "invoice",
    }


def test_a_publisher_that_writes_spans_has_its_own_row(stack: Stack) -> None:
    published = stack.writer("cli").span("publish jobs.v1.submit.{tenant}", 1, 0.5)
    stack.writer("scheduler").span("process jobs.v1.submit.{tenant}", 1.6, parent=published, job=JOB)
    submit, accept = told(stack)
    assert (submit.words, submit.service, submit.duration_ms) == ("submit", "cli", 500)
    assert (accept.words, accept.service) == ("accept", "scheduler")


def test_a_restore_with_nothing_to_restore_says_so(stack: Stack) -> None:
    scheduler, checkpoint = stack.writer("scheduler"), stack.writer("checkpoint")
    life = stories.submit(scheduler, 1)
    checkpoint.span("restore checkpoint", 2, parent=life)
    checkpoint.span("restore checkpoint", 3, parent=life, step=0)
    assert words(told(stack))[2:] == ["no checkpoint to restore", "restore step 0"]


def test_the_claims_of_an_attempt_are_one_row(stack: Stack) -> None:
    """An agent claims before it prepares and again before it starts."""
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for start, attempt in ((2, 1), (2.5, 1), (5, 2)):
        agent.span(
            "ask call.v1.scheduler.claim.{node}", start, 0.1, parent=life, job=JOB, attempt=attempt, node="node-1"
        )
    claims = [row.duration_ms for row in told(stack) if row.words == "claim"]
    assert claims == pytest.approx([600, 100])


def test_a_time_of_storage_that_is_none_leaves_the_row_out(stack: Stack) -> None:
    stack.writer("scheduler").span("process jobs.v1.submit.{tenant}", 1, job=JOB, stored_at="yesterday")
    assert words(told(stack)) == ["accept"]


def test_an_error_below_marks_the_row(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    place = scheduler.span("place job", 2, parent=life)
    scheduler.span("publish jobs.v1.placed.{tenant}", 2, parent=place, error=True)
    assert words(told(stack)) == ["submit", "accept", "place [error]"]


def test_attempts_that_have_not_ended(stack: Stack) -> None:
    """One on a node that lives was given up for another; that one is still running."""
    scheduler, agent = stack.writer("scheduler"), stack.writer("agent", "node-1", 7)
    life = stories.submit(scheduler, 1)
    for attempt in (1, 2, 3):
        agent.span("publish attempts.v1.started.{node}", 1 + attempt, parent=life, job=JOB, attempt=attempt)
    agent.span("run attempt", 2, 0.5, parent=life, job=JOB, attempt=1)
    scheduler.span("lose attempt", 3.5, 0.1, parent=life, job=JOB, attempt=2)
    scheduler.span("place job", 8, 0.1, parent=life, job=JOB, attempt=4)
    found = {row.words: row for row in told(stack)}
    assert (found["run attempt 1"].state, found["run attempt 1"].duration_ms) == ("", 500)
    assert (found["run attempt 2"].state, found["run attempt 2"].duration_ms) == ("killed", 500)
    assert (found["run attempt 3"].state, found["run attempt 3"].duration_ms) == ("running", 4100)


def test_what_is_done_for_another_job_in_the_same_trace_is_not_told(stack: Stack) -> None:
    """A publisher may submit two jobs under one trace of its own."""
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    other = scheduler.span("place job", 2, parent=life, job=OTHER)
    scheduler.span("publish jobs.v1.finished.{tenant}", 3, parent=other)
    assert words(told(stack)) == ["submit", "accept"]
    assert words(told(stack, everything=True)) == ["submit", "accept"]


def test_spans_that_are_each_others_parents_do_no_harm(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    life = stories.submit(scheduler, 1)
    a = scheduler.span("a", 2, parent=life, lost=True)
    b = scheduler.span("b", 2, parent=a)
    stack.ids.next = a.span_id - 1
    scheduler.span("a", 2, parent=b)
    assert words(told(stack)) == ["submit", "accept"]


def test_a_chain_of_any_depth(stack: Stack) -> None:
    scheduler = stack.writer("scheduler")
    parent = stories.submit(scheduler, 1)
    for _ in range(3000):
        parent = scheduler.span("x", 2, parent=parent)
    assert told(stack)[-1].spans == 3001


def row(start_s: float, end_s: float, *, linked: bool = False) -> Row:
    return Row(round(start_s * 1e9), round(end_s * 1e9), "billing", "", "x", "words " * 20, linked=linked)


def test_an_invoice_of_next_month_does_not_squeeze_the_job() -> None:
    lines = waterfall.lines([row(0, 50), row(50, 100), row(2_000_000, 2_000_001, linked=True)], WIDTH)
    assert lines[0].count("█") == lines[1].count("█") > 4
    assert "»" in lines[2]
    assert "+555h33m20s" in lines[2]
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line.endswith("…") for line in lines)


def test_nothing_to_draw() -> None:
    assert waterfall.lines([], WIDTH) == []


@pytest.mark.parametrize("width", [1, 40, 80, 300])
def test_every_width(width: int, tmp_path: Path) -> None:
    stories.whole(tmp_path)
    found = rows(follow(tmp_path, JOB, NOW))
    lines = waterfall.lines(found, width)
    assert len(lines) == len(found)
    assert all(any(mark in line for mark in "█▒▏") for line in lines)
    assert all(len(line) <= max(width, 100) for line in lines)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0.0 ms"), (9.96, "10.0 ms"), (250, "250 ms"), (1000, "1.0 s"), (61_000, "1m01s"), (3 * 3_600_000, "3h00m")],
)
def test_durations(ms: float, text: str) -> None:
    assert waterfall.duration(ms) == text


def test_before_the_start() -> None:
    assert waterfall.offset(-1_500_000_000) == "-1.500s"
