"""Attempts that started and have no `run attempt` span: killed with their node, or still running.

That its agent was killed does not end an attempt: the next agent of the node takes it over. It is known to have ended
when the scheduler gave it up, began another or finished the job, or when an agent told its end that nobody saw.
"""

from collections.abc import Iterable

from libs.journey.follow import Journey
from libs.journey.reading import Fate
from libs.journey.row import Row
from libs.journey.span import Span
from libs.journey.words import EXITED, FINISHED, LOSE, RUN, STARTED

KILLED, RUNNING = "killed", "running"


def unfinished(journey: Journey) -> list[Row]:
    """A row for each member of each of them."""
    told = [span for span in journey.spans if span.text("farside.job") in {"", journey.job_id}]
    numbered = [span for span in told if span.number("farside.attempt") is not None]
    runs = [span for span in numbered if span.name == RUN]
    # Each member tells its start in a message of its own, which several spans are about.
    starts: dict[tuple[str, ...], list[Span]] = {}
    seen: set[tuple[str, ...]] = set()
    for span in numbered:
        place = (span.text("farside.attempt"), node_of(span))
        message = (*place, span.text("messaging.message.id"))
        if span.name.endswith(STARTED) and message not in seen:
            seen.add(message)
            starts.setdefault(place, []).append(span)
    return [_row(journey, told, span) for group in starts.values() for span in _without_run(group, runs)]


def node_of(span: Span) -> str:
    """The node that a span comes from or is about."""
    return span.origin.node or span.text("farside.node")


def _without_run(starts: list[Span], runs: Iterable[Span]) -> list[Span]:
    """Of the starts of an attempt on one node those without a run; which member started is not always told."""
    attempt, node = starts[0].number("farside.attempt"), node_of(starts[0])
    over = [run for run in runs if run.number("farside.attempt") == attempt and node in {"", node_of(run)}]
    members = {run.text("farside.member") for run in over}
    if all(start.text("farside.member") for start in starts) and "" not in members:
        return [start for start in starts if start.text("farside.member") not in members]
    return starts[len(over) :]


def _row(journey: Journey, told: list[Span], start: Span) -> Row:
    attempt, node = start.number("farside.attempt") or 0, node_of(start)
    over = min(_ends(journey, told, start), default=None)
    latest = max(span.end_ns for span in journey.spans if span.ref.trace_id == journey.trace_id)
    deaths = [
        process.last_ns
        for process in journey.processes
        if process.fate is Fate.KILLED and (process.origin.service, process.origin.node) == ("agent", node)
    ]
    signs = [death for death in deaths if over is not None and start.start_ns <= death <= over]
    return Row(
        start_ns=start.start_ns,
        end_ns=latest if over is None else max(signs, default=over),
        service="agent",
        node=node,
        name=start.name,
        words=f"{RUN} {attempt}",
        services=(start.origin.service,),
        state=RUNNING if over is None else KILLED,
        member=start.text("farside.member"),
        trace_id=start.ref.trace_id,
        span_id=start.ref.span_id,
        error=over is not None,
        spans=0,
    )


def _ends(journey: Journey, told: Iterable[Span], start: Span) -> list[int]:
    """When others took the attempt for over: it ran no longer than to the first of them."""
    attempt, found = start.number("farside.attempt") or 0, list[int]()
    for span in told:
        number = span.number("farside.attempt")
        given_up = span.name == LOSE and number in {None, attempt}
        replaced = span.name.endswith(STARTED) and number is not None and number > attempt
        exited = span.name.endswith(EXITED) and number == attempt and node_of(span) == node_of(start)
        finished = span.name.endswith(FINISHED) and span.ref.trace_id == journey.trace_id
        if span.start_ns >= start.start_ns and (given_up or replaced or exited or finished):
            found.append(span.start_ns)
    return found
