"""Follow a job through the trace files of a stack: two readings, one for the links, one for the spans that matter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from libs.journey import orphans
from libs.journey.following import SUBMISSION, Links
from libs.journey.reading import Folder, Process
from libs.journey.span import Ref, Span
from libs.kit.clock import SystemClock

MAX_SPANS = 100_000
NS = 10**9


class NoJourneyError(LookupError):
    """No file speaks of the job."""


@dataclass(frozen=True)
class Journey:
    """A job's way through the services. `spans` are in order of their start, those of all followed traces.

    `killed` tells with which process the parent of a span died, `left_out` counts traces and spans above the bounds,
    `redeliveries` what came to a consumer more than once.
    """

    job_id: str
    trace_id: str
    spans: tuple[Span, ...]
    orphans: tuple[Span, ...]
    killed: Mapping[Ref, Process]
    open: tuple[Span, ...]
    processes: tuple[Process, ...]
    damaged_lines: int
    left_out: int

    @property
    def services(self) -> tuple[str, ...]:
        """The services that took part, in order of their names; one that submitted the job may have no spans here."""
        submitted = {orphans.source_of(span)[0] for span in self.births}
        return tuple(sorted({span.origin.service for span in self.spans} | submitted - {""}))

    @property
    def births(self) -> list[Span]:
        """Where the job's submission was taken, more than once for one that came again."""
        return [span for span in self.spans if span.name == SUBMISSION and span.text("farside.job") == self.job_id]

    @property
    def parent_killed(self) -> tuple[Span, ...]:
        """The spans whose parents died with a process."""
        return tuple(span for span in self.spans if span.ref in self.killed)

    @property
    def redeliveries(self) -> int:
        """How many deliveries were not the first of their message to their consumer."""
        return sum(count - 1 for count in deliveries(self.spans).values())


def follow(folder: Path, job_id: str, now: datetime | None = None) -> Journey:
    """The journey of a job by its id. Raises NoJourneyError when no file of the folder speaks of it."""
    now = now or SystemClock().now()
    files, links = Folder(folder), Links(job_id)
    for span in files.read():
        links.note(span)
    life = links.life()
    if life is None:
        msg = (
            f"no span of job {job_id} in {folder}: was it submitted to this stack, and is FARSIDE_TRACE_DIR set there?"
        )
        raise NoJourneyError(msg)
    followed, left_out = links.followed(life)
    spans = _distinct(files.only(frozenset(followed)))
    left_out += max(0, len(spans) - MAX_SPANS)
    processes = files.processes()
    parentless = orphans.sort_out(spans, processes, round(now.timestamp() * NS))
    return Journey(
        job_id=job_id,
        trace_id=life,
        spans=tuple(spans[:MAX_SPANS]),
        orphans=parentless.orphans,
        killed=parentless.killed,
        open=parentless.open,
        processes=tuple(processes),
        damaged_lines=files.damaged_lines,
        left_out=left_out,
    )


def jobs(folder: Path, prefix: str) -> set[str]:
    """The ids of jobs in the files that begin so."""
    found = {span.text("farside.job") for span in Folder(folder).read()}
    return {job for job in found if job and job.startswith(prefix)}


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """Each span once, though several files may hold it, in order of start."""
    once: dict[Ref, Span] = {}
    for span in spans:
        other = once.setdefault(span.ref, span)
        if _order(span) > _order(other):
            once[span.ref] = span
    return sorted(once.values(), key=_order)


def _order(span: Span) -> tuple[int, int, str, Ref, str]:
    return (span.start_ns, span.end_ns, span.name, span.ref, str(span.origin))


def deliveries(spans: Iterable[Span]) -> dict[tuple[str, str], int]:
    """How often each message came to each consumer: what the server counted, or what was seen if that is more."""
    told: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for span in spans:
        delivery = span.number("messaging.nats.deliveries")
        if delivery is not None:
            key = delivery_key(span)
            told[key] = max(delivery, told.get(key, 0))
            seen[key] = seen.get(key, 0) + 1
    return {key: max(told[key], seen[key]) for key in told}


def delivery_key(span: Span) -> tuple[str, str]:
    """Consumer and message of a span; a batch stands for itself."""
    return (span.text("messaging.nats.consumer"), span.text("messaging.message.id") or span.ref.span_id)
