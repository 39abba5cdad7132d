"""The scheduler's ledger of held cards: what is charged to whom, from claim to end."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.jobs import JobPhase
from services.scheduler.core import quota
from services.scheduler.core.model import Job, MemberRun
from tests.sim.ledger import Tx
from tests.sim.loop import T0, at

Run = tuple[str, int, int]
MAX_MEMBERS = 16
_T0_US = int(T0.timestamp()) * 1_000_000
_QUEUED = frozenset({JobPhase.ACCEPTED, JobPhase.HELD, JobPhase.WAITING})


@dataclass(frozen=True, slots=True)
class Held:
    """Cards of one member, from its claim until its end is known; `share_milli` of each card."""

    tenant: str
    cards: int
    share_milli: int
    from_ms: int
    to_ms: int | None = None

    def card_ms(self, now_ms: int) -> int:
        """Milliseconds times cards at their share."""
        lasted_ms = (now_ms if self.to_ms is None else self.to_ms) - self.from_ms
        return self.cards * self.share_milli * lasted_ms // 1000


class Books:
    """Holdings, and what counts against a tenant. `lean`: live work counts as what it may use at most."""

    def __init__(self, *, lean: bool) -> None:
        self.held: dict[Run, Held] = {}
        self.ended_ms: Counter[str] = Counter()
        self._lean = lean
        self._queued: Counter[str] = Counter()
        self._live: Counter[str] = Counter()

    def us(self, ms: int) -> int:
        """Microseconds since 1970."""
        return _T0_US + ms * 1000

    def charge(self, tx: Tx, job: Job, attempt: int, member: MemberRun, now_ms: int) -> None:
        """From now on the member's cards count as used."""
        held = Held(job.spec.tenant, len(member.seat.cards), member.seat.share_milli, now_ms)
        tx.put(self.held, (job.spec.job_id, attempt, member.index), held)

    def free(self, tx: Tx, job: Job, attempt: int, member: MemberRun, now_ms: int) -> int:
        """Close the member's holding, if it has one; how long it lasted."""
        key = (job.spec.job_id, attempt, member.index)
        held = self.held.get(key)
        if held is None or held.to_ms is not None:
            return 0
        ended = Held(held.tenant, held.cards, held.share_milli, held.from_ms, now_ms)
        tx.put(self.held, key, ended)
        tx.put(self.ended_ms, held.tenant, self.ended_ms[held.tenant] + ended.card_ms(now_ms))
        return now_ms - held.from_ms

    def moved(self, before: Job | None, job: Job) -> None:
        """Keep the sums of what is queued and what is live; lean books only."""
        if not self._lean:
            return
        tenant, may_use = job.spec.tenant, quota.commit_ms(job.spec)
        if before is not None:
            self._sum_of(before)[tenant] -= may_use
        self._sum_of(job)[tenant] += may_use

    def _sum_of(self, job: Job) -> "Counter[str]":
        if job.phase is JobPhase.FINISHED:
            return Counter()
        return self._queued if job.phase in _QUEUED else self._live

    def standing(self, tenant: str, jobs: Mapping[str, Job]) -> quota.Standing:
        """What counts against the tenant's GPU-hours."""
        if self._lean:
            live = quota.Commitment(self._live[tenant], rolling=False)
            return quota.Standing(self.ended_ms[tenant], self._queued[tenant], (live,))
        own = [job for job in jobs.values() if job.spec.tenant == tenant and job.phase is not JobPhase.FINISHED]
        queued = sum(quota.commit_ms(job.spec) for job in own if job.phase in _QUEUED)
        live = [self._commitment(job) for job in own if job.phase not in _QUEUED]
        return quota.Standing(self.ended_ms[tenant], queued, tuple(live))

    def _commitment(self, job: Job) -> quota.Commitment:
        keys = [(job.spec.job_id, job.attempts, member) for member in range(job.spec.members)]
        holdings = [
            quota.Holding(
                held.cards, at(held.from_ms), None if held.to_ms is None else at(held.to_ms), held.share_milli
            )
            for held in (self.held.get(key) for key in keys)
            if held is not None
        ]
        return quota.Commitment(quota.commit_ms(job.spec), quota.is_rolling(job.spec), tuple(holdings))

    def charged_ms(self, job_id: str, attempt: int) -> int:
        """Card-milliseconds at their share that all members of an attempt are charged."""
        found = 0
        for member in range(MAX_MEMBERS):
            held = self.held.get((job_id, attempt, member))
            if held is not None and held.to_ms is not None:
                found += held.card_ms(held.to_ms)
        return found

    def forget(self, job: Job) -> None:
        """Drop the holdings of a job that has finished."""
        for attempt in range(1, job.attempts + 1):
            for member in range(job.spec.members):
                self.held.pop((job.spec.job_id, attempt, member), None)
