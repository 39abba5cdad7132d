"""Spans whose parent is in no file, and why.

A span is written when it ends. A process that is killed takes the spans it has begun with it, and their children, here
or in services that its messages reached, stay behind without a parent. So a missing parent counts as killed with a
process when that process was killed not long before, and the child points to it: it stems from the same process, from
the service (an agent: on the same node) that followed it and published what it had left in its outbox, or its message
or request came from there. The newest spans may have parents that are still at work: those are open, not orphans.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libs.journey.reading import Fate, Process
from libs.journey.span import Ref, Span

OPEN_NS = 5 * 10**9
# An agent that comes back after an outage of its node publishes then what the killed one left.
LOOK_BACK_NS = 600 * 10**9
OUTSIDE = "farside.outside_parent"
SOURCE_PREFIX = "/farside/"


@dataclass(frozen=True)
class Parentless:
    """Followed spans without their parent: by mistake, killed with a process, or not ended yet."""

    orphans: tuple[Span, ...]
    killed: Mapping[Ref, Process]
    open: tuple[Span, ...]


def sort_out(spans: Sequence[Span], processes: Iterable[Process], now_ns: int) -> Parentless:
    """The followed spans whose parent is none of them; a parent outside of Farside is nobody's loss."""
    known = {span.ref for span in spans}
    outside = {Ref(span.ref.trace_id, span.parent) for span in spans if span.attributes.get(OUTSIDE) is True}
    doers = list(processes)
    lost, at_work, killed = list[Span](), list[Span](), dict[Ref, Process]()
    for span in spans:
        parent = Ref(span.ref.trace_id, span.parent)
        if span.parent and parent not in outside and parent not in known:
            near = [doer for doer in doers if (doer.origin.service, doer.origin.node) in _pointed_to(span)]
            victims = [each for each in near if each.fate is Fate.KILLED and _not_long_before(each, span)]
            if victims:
                killed[span.ref] = min(victims, key=lambda victim: _likeness(victim, span))
            elif any(each.fate is Fate.LIVING for each in near) and span.end_ns >= now_ns - OPEN_NS:
                at_work.append(span)
            else:
                lost.append(span)
    return Parentless(tuple(lost), killed, tuple(at_work))


def _not_long_before(process: Process, span: Span) -> bool:
    return process.last_ns >= span.start_ns - LOOK_BACK_NS


def _likeness(process: Process, span: Span) -> tuple[int, int, str]:
    """Lowest for the process that most likely had the parent: what the span points to first, killed nearest to it."""
    origin = process.origin
    return (_pointed_to(span).index((origin.service, origin.node)), abs(process.last_ns - span.start_ns), str(origin))


def _pointed_to(span: Span) -> list[tuple[str, str]]:
    """Service and node: where its message or request came from, and where it stems from; the likeliest first."""
    return [source_of(span), ("agent", span.text("farside.node")), (span.origin.service, span.origin.node)]


def source_of(span: Span) -> tuple[str, str]:
    """Service and node of Farside that published the message of this span, nothing where that is not known."""
    source = span.text("farside.source")
    if not source.startswith(SOURCE_PREFIX):
        return "", ""
    service, _, node = source.removeprefix(SOURCE_PREFIX).partition("/")
    return service, node
