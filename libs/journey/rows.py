"""The rows of a waterfall: what happened, in order, each with what it took along.

A span with words of its own makes a row. The others (the publishing and processing around it, requests, the next
service's bookkeeping) are folded into the row of the nearest span above them that has words, or, at the top of a trace
of its own, of what it links to.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from libs.journey.follow import NS, Journey, deliveries, delivery_key
from libs.journey.orphans import source_of
from libs.journey.row import Row
from libs.journey.span import Ref, Span
from libs.journey.unfinished import node_of, unfinished
from libs.journey.words import (
    CLAIM,
    COMPLETED,
    RUN,
    RUN_ORDER,
    STARTED,
    STOP,
    STOP_ORDER,
    STOPPED,
    SUBMIT,
    WINDOWS,
    words_of,
)

VERBS = ("publish", "process", "ask", "answer")


@dataclass
class _Draft:
    """A row in the making: the span it is named after, and all that belongs to it."""

    words: str
    spans: list[Span] = field(default_factory=list[Span])
    own: set[Ref] = field(default_factory=set[Ref])


@dataclass
class _Folding:
    """Puts each span into a draft."""

    journey: Journey
    everything: bool
    by_ref: Mapping[Ref, Span]
    drafts: dict[tuple[str, ...], _Draft] = field(default_factory=dict[tuple[str, ...], _Draft])
    _drafts_of: dict[Ref, _Draft | None] = field(default_factory=dict[Ref, "_Draft | None"])
    _jobs_of: dict[Ref, str] = field(default_factory=dict[Ref, str])

    def place(self, span: Span) -> None:
        """Find the draft of a span and of those above it."""
        for each in reversed(self._upwards(span)):
            above = self.by_ref.get(Ref(each.ref.trace_id, each.parent))
            job = each.text("farside.job") or (self._jobs_of.get(above.ref, "") if above else "")
            self._jobs_of[each.ref] = job
            draft = self._drafts_of.get(above.ref) if above else None
            self._drafts_of[each.ref] = self._choose(each, draft) if job in {"", self.journey.job_id} else None

    def _upwards(self, span: Span) -> list[Span]:
        """The span and those above it that have no draft yet, a bent tree's circle cut."""
        chain: dict[Ref, Span] = {}
        each: Span | None = span
        while each is not None and each.ref not in chain and each.ref not in self._drafts_of:
            chain[each.ref] = each
            each = self.by_ref.get(Ref(each.ref.trace_id, each.parent))
        return list(chain.values())

    def _choose(self, span: Span, above: _Draft | None) -> _Draft | None:
        told = words_of(span) or (span.name if self.everything else None)
        if told is not None and (self.everything or above is None or above.words != told):
            draft = self.drafts.setdefault(self._key(span, told), _Draft(told))
            draft.own.add(span.ref)
            draft.spans.append(span)
            return draft
        if above is not None:
            above.spans.append(span)
        return above

    def _key(self, span: Span, told: str) -> tuple[str, ...]:
        """What is told in one row: windows, an attempt's claims, the deliveries of one message to one consumer."""
        message = span.text("messaging.message.id")
        if not self.everything:
            if told == WINDOWS:
                return (told,)
            if told == CLAIM:
                return (told, span.text("farside.attempt"), span.text("farside.node"))
            if message:
                return (span.name, message, span.text("messaging.nats.consumer"))
        return (span.ref.trace_id, span.ref.span_id)

    def fold_linked(self, span: Span) -> None:
        """Give a span that has no draft to the row of the first thing it links to."""
        if self._drafts_of[span.ref] is None and self._jobs_of[span.ref] in {"", self.journey.job_id}:
            targets = (self._drafts_of.get(link) for link in span.links)
            draft = next((target for target in targets if target is not None), None)
            if draft is not None:
                self._drafts_of[span.ref] = draft
                draft.spans.append(span)


def rows(journey: Journey, *, everything: bool = False) -> list[Row]:
    """The rows in order of their start; with `everything` one for each span."""
    folding = _Folding(journey, everything, {span.ref: span for span in journey.spans})
    for span in journey.spans:
        folding.place(span)
    if not everything:
        for span in journey.spans:
            folding.fold_linked(span)
    counts = deliveries(journey.spans)
    found = [_row(draft, journey, counts) for draft in folding.drafts.values()]
    runs = _members([*(row for row in found if row.name == RUN), *unfinished(journey)])
    others = [row for row in found if row.name != RUN]
    return sorted([*_submission(journey, found), *others, *runs], key=_order)


def _members(runs: Iterable[Row]) -> list[Row]:
    """Runs, each with its member in its words where the attempt has more than one."""
    runs = list(runs)
    count = Counter(row.words for row in runs)
    return [
        replace(row, words=f"{row.words}, member {row.member}") if row.member and count[row.words] > 1 else row
        for row in runs
    ]


def _order(row: Row) -> tuple[int, int, str, str, str]:
    return (row.start_ns, -row.end_ns, row.words, row.trace_id, row.span_id)


def _row(draft: _Draft, journey: Journey, counts: Mapping[tuple[str, str], int]) -> Row:
    own = [span for span in draft.spans if span.ref in draft.own]
    first = own[0]
    same = [span for span in draft.spans if _subject(span.name) == _subject(first.name)]
    nodes = sorted({node_of(span) for span in own} - {""})
    cause = first.text("farside.cause").replace("_", " ")
    state = "" if cause == COMPLETED else cause
    return Row(
        start_ns=min(span.start_ns for span in own),
        end_ns=max(span.end_ns for span in same),
        service=first.origin.service,
        node=", ".join(nodes),
        name=first.name,
        words=_stopped(draft, first, journey) if draft.words == STOP else draft.words,
        services=tuple(sorted({span.origin.service for span in draft.spans})),
        deliveries=max(counts.get(delivery_key(span), 1) for span in draft.spans),
        count=len(own) if draft.words == WINDOWS else 1,
        spans=len(draft.spans),
        linked=first.ref.trace_id != journey.trace_id,
        error=any(span.error for span in draft.spans) or state not in {"", STOPPED},
        state=state,
        member=first.text("farside.member"),
        trace_id=first.ref.trace_id,
        span_id=first.ref.span_id,
        links=tuple(sorted({link for span in own for link in span.links})),
    )


def _stopped(draft: _Draft, first: Span, journey: Journey) -> str:
    """Which attempt was told to stop, as its agent knew, else the newest that had come to that node before."""
    heard = [span for span in draft.spans if span.name == f"process {STOP_ORDER}" and span.text("farside.attempt")]
    came = [
        span
        for span in journey.spans
        if span.name in {f"process {RUN_ORDER}", f"process {STARTED}"}
        and node_of(span) == node_of(first)
        and span.start_ns <= first.start_ns
    ]
    attempts = [span.text("farside.attempt") for span in heard or came[-1:]]
    return f"{STOP} attempt {attempts[0]}" if attempts else STOP


def _subject(name: str) -> str:
    """What is published and processed, or asked and answered; else the name itself."""
    verb, _, template = name.partition(" ")
    return template if verb in VERBS else name


def _submission(journey: Journey, found: Sequence[Row]) -> list[Row]:
    """When the stream took the submission, for publishers that write no spans."""
    if any(row.words == SUBMIT for row in found):
        return []
    stored = _stored(journey.births)
    if stored is None:
        return []
    start_ns, span = stored
    service = source_of(span)[0] or span.text("farside.source")
    end_ns, trace_id = max(start_ns, span.start_ns), span.ref.trace_id
    return [Row(start_ns, end_ns, service, "", SUBMIT, SUBMIT, services=(service,), trace_id=trace_id, spans=0)]


def _stored(births: Iterable[Span]) -> tuple[int, Span] | None:
    for span in births:
        try:
            return round(datetime.fromisoformat(span.text("farside.stored_at")).timestamp() * NS), span
        except ValueError:
            continue
    return None
