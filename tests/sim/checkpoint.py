"""The checkpoint service's shell in memory: saves, commits to a store, restores with the fence."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from contracts.attempts import AttemptSaved
from contracts.requests import RestoreReply, RestoreRequest
from services.checkpoint.core.holding import foreign
from services.checkpoint.core.model import Checkpoint, Effect, Expire, Fail, Grant, Job, Keep, KeepShard, Phase
from services.checkpoint.core.restoring import mismatch, overtaken
from services.checkpoint.core.saving import Known
from services.scheduler.core.model import Job as SchedulerJob
from tests.sim.bus import Bus, Mail
from tests.sim.ledger import NotYetError, Service, Tx
from tests.sim.loop import SECOND
from tests.sim.names import job_name
from tests.sim.settings import Cores
from tests.sim.truth import Truth

WRITE_MS = 40
SEARCH_MS = 300
AWAY_MS = 4 * SECOND
Place = tuple[str, int, int]  # job, attempt, step
_DEAD = frozenset({Phase.DAMAGED, Phase.EXPIRING, Phase.EXPIRED, Phase.FAILED})


@dataclass(frozen=True)
class File:
    """All that is known of one job."""

    job: Job
    checkpoints: tuple[Checkpoint, ...] = ()
    grants: tuple[Grant, ...] = ()

    def find(self, attempt: int | None, step: int | None) -> Checkpoint | None:
        """One checkpoint."""
        return next((one for one in self.checkpoints if one.place == (attempt, step)), None)

    def granted(self, attempt: int) -> Grant | None:
        """What an attempt was granted."""
        return next((one for one in self.grants if one.attempt == attempt), None)

    def having(self, checkpoint: Checkpoint) -> "File":
        """The same with a checkpoint as it is now; those that expired or failed are dropped."""
        others = tuple(one for one in self.checkpoints if one.place != checkpoint.place)
        return replace(self, checkpoints=(*others, checkpoint))


class Checkpoints(Service):
    """Owns checkpoints and the fence of each job."""

    name = "checkpoint"

    def __init__(self, bus: Bus, truth: Truth, cores: Cores, committed: Callable[[str], None]) -> None:
        """`committed` hears of jobs whose work is safe anew."""
        super().__init__(bus, inbox=cores.inbox)
        self.files: dict[str, File] = {}
        self._holders: dict[tuple[str, int], dict[int, str]] = {}
        self._found: dict[tuple[str, int], Checkpoint | None] = {}
        self._markers: dict[tuple[str, int], tuple[int, int]] = {}
        self._truth = truth
        self._cores = cores
        self._committed = committed
        self.on("jobs.placed", self._placed)
        self.on("jobs.finished", self._finished)
        self.on("attempts.saved", self._saved)

    def _file(self, job_id: str, tenant: str) -> File:
        return self.files.get(job_id) or File(Job(job_id, tenant))

    def _placed(self, tx: Tx, mail: Mail) -> None:
        job: SchedulerJob = mail.body
        assert job.attempt is not None
        nodes = {member.index: member.seat.node for member in job.attempt.members}
        tx.put(self._holders, (job.spec.job_id, job.attempt.number), nodes)

    def _finished(self, tx: Tx, mail: Mail) -> None:
        job: SchedulerJob = mail.body
        file = self._file(job.spec.job_id, job.spec.tenant)
        tx.put(self.files, job.spec.job_id, replace(file, job=replace(file.job, finished=True)))

    # ---- saves and commits

    def _saved(self, tx: Tx, mail: Mail) -> None:
        saved: AttemptSaved = mail.body
        holders = self._holders.get((saved.job_id, saved.attempt))
        if holders is None:
            raise NotYetError
        assert foreign(saved, holders) is None, "agents of this world speak for themselves"
        file = self._file(saved.job_id, saved.tenant)
        current = file.find(saved.attempt, saved.step)
        known = None
        if current is not None:
            own = next((shard for shard in current.shards if shard.member == saved.member), None)
            known = Known(current, len(current.shards), own)
        self._apply(tx, file, self._cores.take(file.job, known, saved, self.loop.now))

    def _apply(self, tx: Tx, file: File, effects: Iterable[Effect]) -> File:
        for effect in effects:
            match effect:
                case Keep(checkpoint):
                    current = file.find(*checkpoint.place)
                    shards = () if current is None else current.shards
                    file = file.having(replace(checkpoint, shards=shards))
                    if checkpoint.phase is Phase.COMMITTING:
                        place = (checkpoint.job_id, *checkpoint.place)
                        tx.then(partial(self.loop.after, WRITE_MS, self._work, place, 1))
                case KeepShard(checkpoint, shard):
                    current = file.find(*checkpoint.place)
                    assert current is not None
                    file = file.having(replace(current, shards=(*current.shards, shard)))
                case Fail(checkpoint, cause, _):
                    file = file.having(checkpoint)
                    self._tell(tx, f"step {checkpoint.step} of attempt {checkpoint.attempt} fails: {cause}", file)
                case Expire(checkpoint):
                    file = file.having(replace(checkpoint, phase=Phase.EXPIRED))
                    tx.then(partial(self._markers.pop, (checkpoint.job_id, checkpoint.step), None))
                case _:
                    assert_never(effect)
        tx.put(self.files, file.job.job_id, file)
        return file

    def _work(self, place: Place, count: int) -> None:
        """Publish the marker of a complete checkpoint, then say so; as often as it takes."""
        job_id, attempt, step = place
        about = f"commit of {job_name(job_id)}/{attempt} step {step}, try {count}"
        faults, back_ms = self.bus.faults, self.back_ms()
        if back_ms is not None:
            self.loop.at(back_ms + WRITE_MS, self._work, place, count)
        elif faults.hits("store away", faults.rates.store_away, about) or not self._commit(place, about):
            self.loop.after(AWAY_MS, self._work, place, count + 1)

    def _commit(self, place: Place, about: str) -> bool:
        """Marker first, then the row: killed between the two, it is done again. True when nothing is left to do."""
        job_id, attempt, step = place
        found = self.files[job_id].find(attempt, step)
        if found is None or found.phase is not Phase.COMMITTING:
            return True
        owner = self._markers.get((job_id, step))
        if owner is not None and owner != found.place and not self._dead(job_id, owner):
            with self.transaction() as tx:
                file = self.files[job_id].having(replace(found, phase=Phase.FAILED))
                tx.put(self.files, job_id, file)
                self._tell(tx, f"step {step} of attempt {attempt} fails: the marker is another's", file)
            return True
        self._markers[job_id, step] = found.place
        if self.bus.faults.hits("killed", self.bus.faults.rates.rollback, about):
            return False
        with self.transaction() as tx:
            file = self.files[job_id].having(replace(found, phase=Phase.COMMITTED))
            standing = [one for one in file.checkpoints if one.phase is Phase.COMMITTED]
            self._apply(tx, file, self._cores.expire(standing, file.grants, found.keep_last))
            tx.then(partial(self._truth.committed, job_id, attempt, step))
            tx.then(partial(self._committed, job_id))
            self._tell(tx, f"step {step} of attempt {attempt} is committed", file)
        return True

    def _dead(self, job_id: str, owner: tuple[int, int]) -> bool:
        found = self.files[job_id].find(*owner)
        return found is None or found.phase in _DEAD

    # ---- restores

    def restore(self, asked: RestoreRequest) -> RestoreReply | None:
        """Raise the fence, roll older commits forward, grant the newest checkpoint; None when there is no answer."""
        holders = self._holders.get((asked.job_id, asked.attempt))
        if self.back_ms() is not None or holders is None:
            return None
        assert foreign(asked, holders) is None, "agents of this world speak for themselves"
        with self.transaction() as tx:
            file = self._file(asked.job_id, asked.tenant)
            fence = max(file.job.fence, asked.attempt)
            tx.put(self.files, asked.job_id, replace(file, job=replace(file.job, fence=fence)))
        key, file = (asked.job_id, asked.attempt), self.files[asked.job_id]
        if file.granted(asked.attempt) is None and key not in self._found:
            if file.checkpoints:
                self.loop.after(SEARCH_MS, self._search, key, self.loop.now_ms)
                return None
            self._found[key] = None
        return self._grant(asked, file, self._found.get(key))

    def _search(self, key: tuple[str, int], since_ms: int) -> None:
        """Roll older attempts' commits forward, then choose; it takes a while, and more may come meanwhile."""
        job_id, attempt = key
        faults, about = self.bus.faults, f"restore of {job_name(job_id)}/{attempt} at {since_ms}"
        if self.back_ms() is not None or faults.hits("store away", faults.rates.store_away, about):
            return
        older = [
            one for one in self.files[job_id].checkpoints if one.phase is Phase.COMMITTING and one.attempt < attempt
        ]
        done = [self._commit((job_id, *one.place), f"{about}, rolled forward") for one in older]
        if all(done):
            file = self.files[job_id]
            self._found[key] = next(iter(self._cores.candidates(file.checkpoints, file.grants)), None)

    def started(self) -> None:
        """What was found is not known any more."""
        self._found.clear()

    def _grant(self, asked: RestoreRequest, file: File, found: Checkpoint | None) -> RestoreReply | None:
        refusal = self._cores.refuse_old(asked.attempt, file.job.fence)
        if refusal is not None:
            return RestoreReply(granted=False, message=refusal)
        known = file.granted(asked.attempt)
        current = file.find(known.from_attempt, known.step) if known else found and file.find(*found.place)
        gone = current is None or current.phase is not Phase.COMMITTED
        if known is not None and known.step is not None and gone:
            return RestoreReply(granted=False, message="what it was granted is gone")
        if known is None and found is not None and gone:
            self._found.pop((asked.job_id, asked.attempt), None)
            return None
        found = current
        problem = None if found is None else mismatch(found, asked.binding, asked.members)
        if problem is not None:
            return RestoreReply(granted=False, message=problem)
        if known is None:
            self._note(asked, file, found)
        if found is None:
            return RestoreReply(granted=True)
        return RestoreReply(granted=True, step=found.step, from_attempt=found.attempt, shards=list(found.shards))

    def _note(self, asked: RestoreRequest, file: File, found: Checkpoint | None) -> None:
        """The first member of an attempt asks: what all of them are granted."""
        step, source = (None, None) if found is None else (found.step, found.attempt)
        with self.transaction() as tx:
            file = replace(file, grants=(*file.grants, Grant(asked.attempt, step, source)))
            self._apply(tx, file, overtaken(file.checkpoints, file.job.fence))
            tx.then(partial(self._truth.granted, asked.job_id, asked.attempt, step))
            self._tell(tx, f"attempt {asked.attempt} starts from step {step}, older ones are fenced off", file)
            told = (asked.job_id, asked.attempt, self.loop.now)
            self.emit(
                tx,
                "checkpoints.restored",
                told,
                key=asked.tenant,
                subject=job_name(asked.job_id),
                sequence=asked.attempt,
            )

    def _tell(self, tx: Tx, text: str, file: File) -> None:
        name = job_name(file.job.job_id)
        tx.then(partial(self.bus.story.tell, self.loop.now_ms, f"checkpoint: {name}: {text}", name))

    def forget_job(self, job_id: str, attempts: int) -> None:
        """Nothing more will be asked of a job."""
        file = self.files.pop(job_id, None)
        for attempt in range(1, attempts + 1):
            self._holders.pop((job_id, attempt), None)
            self._found.pop((job_id, attempt), None)
        for one in () if file is None else file.checkpoints:
            self._markers.pop((job_id, one.step), None)
