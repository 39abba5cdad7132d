"""Spans whose parent is in no file, and why.

A span is written when it ends. A process that is killed takes the spans it has begun with it, and their children, here
or in services that its messages reached, stay behind without a parent. So a missing parent counts as killed with a
process when that process was killed not long before, and the child points to it: it stems from the same process, from
the service (an agent: on the same node) that followed it and published what it had left in its outbox, or its message
or request came from there. The newest spans may have parents that are still at work: those are open, not orphans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libs.journey.reading import Fate, Process
from libs.journey.span import Origin, Ref, Span

OPEN_NS = 5 * 10**9
# An agent that comes back after an outage of its node publishes then what the killed one left.
LOOK_BACK_NS = 600 * 10**9
OUTSIDE = "farside.outside_parent"
SOURCE_PREFIX = "/farside/"


@dataclass(frozen=True)
class Parentless:
    """Followed spans without their parent: by mistake, killed with a process, or not ended yet."""

    orphans: tuple[Span, ...]
    parent_killed: tuple[Span, ...]
    open: tuple[Span, ...]


def sort_out(spans: Sequence[Span], processes: Iterable[Process], now_ns: int) -> Parentless:
    """The followed spans whose parent is none of them; a parent outside of Farside is nobody's loss."""
    known = {span.ref for span in spans}
    outside = {Ref(span.ref.trace_id, span.parent) for span in spans if span.attributes.get(OUTSIDE) is True}
    doers = list(processes)
    found: dict[str, list[Span]] = {"orphans": [], "parent_killed": [], "open": []}
    for span in spans:
        parent = Ref(span.ref.trace_id, span.parent)
        if span.parent and parent not in outside and parent not in known:
            found[_why(span, [doer for doer in doers if _points_to(span, doer.origin)], now_ns)].append(span)
    return Parentless(**{name: tuple(group) for name, group in found.items()})


def _why(span: Span, doers: Iterable[Process], now_ns: int) -> str:
    """`doers` are the processes that may have had the parent."""
    fates = {
        doer.fate for doer in doers if doer.fate is not Fate.KILLED or doer.last_ns >= span.start_ns - LOOK_BACK_NS
    }
    if Fate.KILLED in fates:
        return "parent_killed"
    if Fate.LIVING in fates and span.end_ns >= now_ns - OPEN_NS:
        return "open"
    return "orphans"


def _points_to(span: Span, origin: Origin) -> bool:
    """Whether the span stems from there, from another process of that service, or from a message sent there."""
    here = (span.origin.service, span.origin.node)
    source = source_of(span)
    named = {here, source, ("agent", span.text("farside.node"))}
    return (origin.service, origin.node) in named


def source_of(span: Span) -> tuple[str, str]:
    """Service and node that published the message of this span, nothing where it is not known."""
    service, _, node = span.text("farside.source").removeprefix(SOURCE_PREFIX).partition("/")
    return service, node
