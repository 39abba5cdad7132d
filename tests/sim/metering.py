"""Metering's shell in memory: rows become samples, each once, or are refused and kept."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from contracts.usage import RowFault, UsageItem, UsageMeasured, UsageRow
from services.metering.core import crowd
from services.metering.core.crowd import Span
from services.metering.core.judge import fenced, gpu_ms, overlap, overlapping
from services.metering.core.model import Identity, Measured, Placement, Refused, Sample, Seat, identity
from services.scheduler.core.model import Job
from tests.sim.bus import Bus, Mail
from tests.sim.ledger import Service, Tx
from tests.sim.loop import at
from tests.sim.names import job_name
from tests.sim.settings import AHEAD, METERING, Cores
from tests.sim.truth import Truth

AttemptKey = tuple[str, int]
RowKey = tuple[int, int]  # message, place
MIB = 1024 * 1024


@dataclass
class Totals:
    """What was counted of jobs that are dropped."""

    samples: int = 0
    gpu_ms: int = 0
    refused: int = 0


class Metering(Service):
    """Owns samples."""

    name = "metering"
    unboxed = frozenset({"usage.measured"})

    def __init__(self, bus: Bus, truth: Truth, cores: Cores) -> None:
        super().__init__(bus, inbox=cores.inbox)
        self.samples: dict[Identity, Sample] = {}
        self.refused: dict[RowKey, Refused] = {}
        self.totals = Totals()
        self.faults: Counter[str] = Counter()
        self._placements: dict[AttemptKey, Placement] = {}
        self._fences: dict[str, dict[int, datetime]] = {}
        self._of_attempt: dict[AttemptKey, dict[Identity, None]] = {}
        self._refused_of: dict[AttemptKey, dict[RowKey, None]] = {}
        self._on_card: dict[tuple[str, int, str], dict[Identity, None]] = {}
        self._truth = truth
        self._cores = cores
        self.on("jobs.placed", self._placed)
        self.on("jobs.finished", self._finished)
        self.on("checkpoints.restored", self._restored)
        self.on("usage.measured", self._measured)

    # ---- what comes in

    def _measured(self, tx: Tx, mail: Mail) -> None:
        self._admit(tx, list(_rows(mail)))

    def _placed(self, tx: Tx, mail: Mail) -> None:
        job: Job = mail.body
        assert job.attempt is not None
        key = (job.spec.job_id, job.attempt.number)
        if key in self._placements:
            return
        seats = {
            member.index: Seat(
                member.seat.node,
                member.seat.tier,
                frozenset(member.seat.cards),
                member.seat.accelerator,
                None if member.seat.card_memory_bytes is None else member.seat.card_memory_bytes // MIB,
                member.seat.share_milli,
            )
            for member in job.attempt.members
        }
        tx.put(self._placements, key, Placement(job.spec.tenant, seats, job.updated_at))
        waiting = [
            (place, self.refused[place].measured)
            for place in self._refused_of.get(key, ())
            if self.refused[place].fault is RowFault.UNKNOWN_ATTEMPT
        ]
        for place, _ in waiting:
            tx.drop(self.refused, place)
            tx.drop(self._refused_of[key], place)
        self._admit(tx, [measured for _, measured in waiting])

    def _restored(self, tx: Tx, mail: Mail) -> None:
        job_id, attempt, moment = mail.body
        self._fence(tx, job_id, attempt, moment)

    def _finished(self, tx: Tx, mail: Mail) -> None:
        job: Job = mail.body
        self._fence(tx, job.spec.job_id, job.attempts + 1, job.updated_at + AHEAD)

    def _fence(self, tx: Tx, job_id: str, attempt: int, moment: datetime) -> None:
        known = self._fences.get(job_id, {})
        if attempt in known:
            return
        tx.put(self._fences, job_id, {**known, attempt: moment})
        for number in range(1, attempt):
            for key in list(self._of_attempt.get((job_id, number), ())):
                sample = self.samples[key]
                if sample.measured.row.window_start >= moment:
                    self._remove(tx, sample)
                    self._refuse(tx, [fenced(sample.measured, moment)])

    def _placement(self, key: AttemptKey) -> Placement | None:
        found = self._placements.get(key)
        if found is None:
            return None
        fences = [moment for attempt, moment in self._fences.get(key[0], {}).items() if attempt > key[1]]
        return replace(found, fenced_at=min(fences, default=None))

    # ---- judging

    def _admit(self, tx: Tx, measured: Sequence[Measured]) -> None:
        verdicts = [
            self._cores.judge(one, self._placement((one.row.job_id, one.row.attempt)), METERING) for one in measured
        ]
        samples = [one for one in verdicts if isinstance(one, Sample)]
        refused = [one for one in verdicts if isinstance(one, Refused)]
        standing = {key: self.samples[key].measured.row for key in map(_key, samples) if key in self.samples}
        fresh, conflicts = self._cores.distinct(samples, standing)
        fresh, twice = _without(fresh, [place for place, one in enumerate(fresh) if self._overlaps(one)])
        fresh, before = _without(fresh, list(overlapping(fresh)))
        beside = {place: self._beside(one) for place, one in enumerate(fresh)}
        many = set(crowd.crowded(fresh, beside))
        late = [*conflicts, *twice, *before, *(crowd.too_many(fresh[place].measured) for place in sorted(many))]
        for place, one in enumerate(fresh):
            if place not in many:
                self._insert(tx, one)
        self._refuse(tx, [*refused, *late])

    def _overlaps(self, sample: Sample) -> bool:
        row = sample.measured.row
        others = (self.samples[key].measured.row for key in self._of_attempt.get((row.job_id, row.attempt), ()))
        return any(
            (one.member, one.card, one.item) == (row.member, row.card, row.item)
            and one.window_start != row.window_start
            and one.window_start < row.window_end
            and one.window_end > row.window_start
            for one in others
        )

    def _beside(self, sample: Sample) -> list[Span]:
        row, mine = sample.measured.row, sample.measured.row
        found: list[Span] = []
        for key in self._on_card.get(_card(sample), ()):
            one = self.samples[key].measured.row
            own = (one.job_id, one.attempt, one.member) == (mine.job_id, mine.attempt, mine.member)
            if not own and one.window_start < row.window_end and one.window_end > row.window_start:
                found.append(Span(one.window_start, one.window_end, one.share_milli))
        return found

    def _insert(self, tx: Tx, sample: Sample) -> None:
        key, row = _key(sample), sample.measured.row
        once, name = key not in self.samples, job_name(row.job_id)
        self._truth.hold("each sample counts once", name, true=once, words=f"{key} is stored twice")
        tx.put(self.samples, key, sample)
        tx.put(self._of_attempt.setdefault((row.job_id, row.attempt), {}), key, None)
        tx.put(self._on_card.setdefault(_card(sample), {}), key, None)

    def _remove(self, tx: Tx, sample: Sample) -> None:
        key, row = _key(sample), sample.measured.row
        tx.drop(self.samples, key)
        tx.drop(self._of_attempt[row.job_id, row.attempt], key)
        tx.drop(self._on_card[_card(sample)], key)

    def _refuse(self, tx: Tx, refused: Iterable[Refused]) -> None:
        for one in refused:
            row, place = one.measured.row, (int(one.measured.message_id), one.measured.place)
            if place in self.refused:
                continue
            tx.put(self.refused, place, one)
            tx.put(self._refused_of.setdefault((row.job_id, row.attempt), {}), place, None)
            words = f"metering refuses {row.quantity} {row.item} of {job_name(row.job_id)}: {one.message}"
            tx.then(partial(self.bus.story.tell, self.loop.now_ms, words, job_name(row.job_id)))

    # ---- the sums

    def card_ms(self, job_id: str, attempt: int) -> tuple[int, int]:
        """Card-milliseconds of an attempt: those that count, and those that were refused."""
        counted = sum(gpu_ms(self.samples[key].measured.row) for key in self._of_attempt.get((job_id, attempt), ()))
        kept = sum(gpu_ms(self.refused[place].measured.row) for place in self._refused_of.get((job_id, attempt), ()))
        return counted, kept

    def forget_job(self, job_id: str, attempts: int) -> None:
        """Nothing more will come of a job: keep the sums only."""
        for attempt in range(1, attempts + 1):
            key = (job_id, attempt)
            for one in self._of_attempt.pop(key, ()):
                sample = self.samples.pop(one)
                self._on_card[_card(sample)].pop(one, None)
                self.totals.samples += 1
                self.totals.gpu_ms += gpu_ms(sample.measured.row)
            for place in self._refused_of.pop(key, ()):
                self.faults[self.refused.pop(place).fault.value] += 1
                self.totals.refused += 1
            self._placements.pop(key, None)
        self._fences.pop(job_id, None)


def _key(sample: Sample) -> Identity:
    return identity(sample.measured.row)


def _card(sample: Sample) -> tuple[str, int, str]:
    row = sample.measured.row
    return sample.measured.node, row.card, str(row.item)


def _rows(mail: Mail) -> Iterator[Measured]:
    body: UsageMeasured = mail.body
    for place, row in enumerate(body.rows):
        yield Measured(
            row=row,
            source=f"/farside/agent/{mail.key}",
            message_id=str(mail.id),
            place=place,
            node=mail.key,
            period_s=body.period_s,
            window_start=body.window_start,
            stored_at=at(mail.stored_ms),
            trace=None,
        )


def _without(samples: Sequence[Sample], places: Sequence[int]) -> tuple[list[Sample], list[Refused]]:
    gone = set(places)
    return (
        [one for place, one in enumerate(samples) if place not in gone],
        [overlap(samples[place].measured) for place in sorted(gone)],
    )


__all__ = ["Metering", "UsageItem", "UsageRow"]
