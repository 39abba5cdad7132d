"""Attempts that started and have no `run attempt` span: killed with their node, or still running.

That its agent was killed does not end an attempt: the next agent of the node takes it over. It is known to have ended
when the scheduler gave it up, began another, or finished the job.
"""

from libs.journey.follow import Journey
from libs.journey.reading import Fate
from libs.journey.row import Row
from libs.journey.span import Span
from libs.journey.words import FINISHED, LOSE, RUN, STARTED

KILLED, RUNNING = "killed", "running"


def unfinished(journey: Journey) -> list[Row]:
    """A row for each of them."""
    starts: dict[tuple[int, str], Span] = {}
    ended: set[tuple[int, str]] = set()
    for span in journey.spans:
        attempt = span.number("farside.attempt")
        if attempt is None or span.text("farside.job") not in {"", journey.job_id}:
            continue
        key = (attempt, span.origin.node or span.text("farside.node"))
        if span.name == RUN:
            ended |= {key, (attempt, "")}
        elif span.name.endswith(STARTED):
            starts.setdefault(key, span)
    over = {span.number("farside.attempt") for span in journey.spans if span.name == LOSE}
    finished = any(span.name.endswith(FINISHED) for span in journey.spans if span.ref.trace_id == journey.trace_id)
    last = max((attempt for attempt, _ in starts), default=0)
    return [
        _row(journey, attempt, node, span, killed=finished or attempt in over or attempt < last)
        for (attempt, node), span in starts.items()
        if (attempt, node) not in ended and (node or (attempt, "") not in ended)
    ]


def _row(journey: Journey, attempt: int, node: str, start: Span, *, killed: bool) -> Row:
    deaths = [
        process.last_ns
        for process in journey.processes
        if process.fate is Fate.KILLED and process.origin.service == "agent" and process.origin.node == node
    ]
    losses = [
        span.start_ns for span in journey.spans if span.name == LOSE and span.number("farside.attempt") == attempt
    ]
    ends = [end for end in [*deaths, *losses] if end >= start.start_ns]
    latest = max(span.end_ns for span in journey.spans if span.ref.trace_id == journey.trace_id)
    return Row(
        start_ns=start.start_ns,
        end_ns=min(ends, default=latest) if killed else latest,
        service="agent",
        node=node,
        name=start.name,
        words=f"{RUN} {attempt}",
        services=(start.origin.service,),
        state=KILLED if killed else RUNNING,
        trace_id=start.ref.trace_id,
        span_id=start.ref.span_id,
        error=killed,
        spans=0,
    )
