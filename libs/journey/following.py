"""Which traces belong to a job's journey: its life, what the life points to, and what points to either.

A job's life is one trace. Work that is done for many jobs at once (a batch, a node's windows, a roll-up, an invoice) is
a trace of its own with links to what it was done for. Links are followed towards the job's own consequences: backwards,
from what is followed to what links there, as far as it goes; forwards, from the life to what it links to, one step. The
lives of other jobs are never entered, nor is what a span does in the name of another job or tenant.
"""

from collections import Counter
from dataclasses import dataclass, field

from libs.journey.span import Span

SUBMISSION = "process jobs.v1.submit.{tenant}"
MAX_TRACES = 10_000


@dataclass
class Links:
    """What a first reading keeps of the spans: links between traces, and which traces are lives."""

    job_id: str
    _mentions: Counter[str] = field(default_factory=Counter[str])
    _births: list[tuple[bool, int, str, str]] = field(default_factory=list[tuple[bool, int, str, str]])
    _lives: set[str] = field(default_factory=set[str])
    _links: set[tuple[str, str, str, str]] = field(default_factory=set[tuple[str, str, str, str]])

    def note(self, span: Span) -> None:
        """Keep what matters of one span."""
        job, tenant, trace_id = span.text("farside.job"), span.text("farside.tenant"), span.ref.trace_id
        if job == self.job_id:
            self._mentions[trace_id] += 1
        if span.name == SUBMISSION and job:
            self._lives.add(trace_id)
            if job == self.job_id:
                duplicate = span.text("farside.outcome") == "duplicate"
                self._births.append((duplicate, span.start_ns, trace_id, tenant))
        for link in span.links:
            if link.trace_id != trace_id:
                self._links.add((trace_id, link.trace_id, job, tenant))

    def life(self) -> str | None:
        """The trace in which the job was submitted, else the one that speaks most of it; None when none does."""
        if self._births:
            return min(self._births)[2]
        most = sorted((-count, trace_id) for trace_id, count in self._mentions.items())
        return most[0][1] if most else None

    def followed(self, life: str) -> tuple[list[str], int]:
        """The traces of the journey, the life first, and how many more there would be above MAX_TRACES."""
        tenant = min(self._births)[3] if self._births else ""
        backwards: dict[str, list[str]] = {}
        causes: list[str] = []
        for source, target, job, of_tenant in sorted(self._links):
            if job not in {"", self.job_id} or (tenant and of_tenant not in {"", tenant}):
                continue
            backwards.setdefault(target, []).append(source)
            if source == life:
                causes.append(target)
        found = self._reach(life, backwards)
        entered = {*found, *self._lives}
        found += [trace_id for trace_id in dict.fromkeys(causes) if trace_id not in entered]
        return found[:MAX_TRACES], max(0, len(found) - MAX_TRACES)

    def _reach(self, life: str, backwards: dict[str, list[str]]) -> list[str]:
        """What leads to `life` over links, nearest first."""
        found, entered = [life], {life, *self._lives}
        edge = [life]
        while edge:
            sources = (source for target in edge for source in backwards.get(target, ()))
            edge = [trace_id for trace_id in dict.fromkeys(sources) if trace_id not in entered]
            entered.update(edge)
            found += edge
        return found
