"""The shell: messages and requests in, one transaction each."""

from contracts.attempts import AttemptRef, AttemptSaved, AttemptUnsaved
from contracts.checkpoints import CheckpointFailure
from contracts.jobs import JobState
from contracts.requests import CheckpointsQuery, CheckpointsReply, ProblemCode, RestoreReply, RestoreRequest
from libs.bus import Call, Event, Ledger, NotYet, Problem, Refused, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.objects import ObjectsError
from libs.telemetry import context, spans
from services.checkpoint import store
from services.checkpoint.committer import committed
from services.checkpoint.core.holding import foreign, not_placed
from services.checkpoint.core.model import Checkpoint, Grant, Job, Phase
from services.checkpoint.core.restoring import mismatch, overtaken, refuse_old
from services.checkpoint.core.saving import in_trouble, take
from services.checkpoint.effects import TRIED_ON, Teller
from services.checkpoint.protocol import Protocol
from services.checkpoint.restorer import Busy, Restorer
from services.checkpoint.settings import CheckpointSettings
from services.checkpoint.store import Origin, Snapshot
from services.checkpoint.worker import Worker

REPLY_BYTES_LIMIT = 400 * 1024


class Handlers:
    """What the service does with what comes in."""

    def __init__(
        self,
        ledger: Ledger[Connection],
        protocol: Protocol,
        restorer: Restorer,
        worker: Worker,
        clock: Clock,
        settings: CheckpointSettings,
    ) -> None:
        """`ledger` is for the transaction that a restore needs before its own."""
        self._ledger = ledger
        self._protocol = protocol
        self._restorer = restorer
        self._worker = worker
        self._clock = clock
        self._orphan_after = settings.orphan_after

    async def placed(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """From now on it is known which node holds which member of an attempt."""
        state = event.body
        if state.attempt is None:
            msg = f"jobs.placed of job {state.job_id} names no attempt"
            raise Refused(msg)
        job = await store.lock_job(tx.conn, state.job_id, state.tenant)
        _check_tenant(job, state.tenant)
        await store.add_holders(tx.conn, state.job_id, state.attempt)

    async def saved(self, tx: Tx[Connection], event: Event[AttemptSaved]) -> None:
        """A member has uploaded its shard."""
        saved, now = event.body, self._clock.now()
        await _check_holder(tx.conn, saved)
        job = await store.lock_job(tx.conn, saved.job_id, saved.tenant)
        _check_tenant(job, saved.tenant)
        _check_shard(saved, self._protocol.shard_uri(saved))
        known = await store.known_save(tx.conn, saved.job_id, saved.attempt, saved.step, saved.member)
        effects = take(job, known, saved, now)
        origin = Origin(event.actor or event.source, context.current())
        await Teller(tx, now, self._orphan_after).apply(effects, origin)
        self._worker.wake()

    async def unsaved(self, tx: Tx[Connection], event: Event[AttemptUnsaved]) -> None:
        """A member could not bring its shard to the store; told once for each save, whichever members report it."""
        unsaved, now = event.body, self._clock.now()
        await _check_holder(tx.conn, unsaved)
        job = await store.lock_job(tx.conn, unsaved.job_id, unsaved.tenant)
        _check_tenant(job, unsaved.tenant)
        known = await store.load_checkpoint(tx.conn, unsaved.job_id, unsaved.attempt, unsaved.step)
        if not in_trouble(job, known, unsaved):
            return
        if await store.note_unsaved(tx.conn, unsaved.job_id, unsaved.attempt, unsaved.step, now):
            origin = Origin(event.actor or event.source, context.current())
            message = f"member {unsaved.member} on node {unsaved.node}: {unsaved.message}; {TRIED_ON}"
            teller = Teller(tx, now, self._orphan_after)
            await teller.tell_failed(unsaved, CheckpointFailure.STORE_UNAVAILABLE, message, origin)

    async def finished(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """No attempt of this job will come any more."""
        state, now = event.body, self._clock.now()
        job = await store.lock_job(tx.conn, state.job_id, state.tenant)
        _check_tenant(job, state.tenant)
        await store.finish_job(tx.conn, job.job_id, now, now + self._orphan_after)

    async def restore(self, tx: Tx[Connection], call: Call[RestoreRequest]) -> RestoreReply:
        """Raise the fence, find the newest valid checkpoint, and grant it to all members of the attempt."""
        asked = call.body
        await self._raise_fence(asked)
        known = await store.has_grant(tx.conn, asked.job_id, asked.attempt)
        found = None if known else await self._find(asked)
        job = await store.lock_job(tx.conn, asked.job_id, asked.tenant)
        seen = await store.snapshot(tx.conn, job)
        refusal = refuse_old(asked.attempt, job.fence)
        if refusal is not None:
            return RestoreReply(granted=False, message=refusal)
        granted = seen.granted(asked.attempt)
        if granted is not None:
            return _reply(seen, granted, asked)
        return await self._grant(tx, seen, found, asked)

    async def checkpoints(self, tx: Tx[Connection], call: Call[CheckpointsQuery]) -> CheckpointsReply:
        """The committed checkpoints of a job, newest first, as many as fit into a reply."""
        job = await store.find_job(tx.conn, call.body.job_id)
        if job is None or call.key not in {job.tenant, "_"}:
            msg = f"job {call.body.job_id} has saved nothing and restored nothing: see `farside job show`"
            raise Problem(ProblemCode.NOT_FOUND, msg)
        seen = await store.snapshot(tx.conn, job)
        listed = [committed(one, self._protocol) for one in seen.checkpoints if one.phase is Phase.COMMITTED]
        size_bytes, fitting = 0, 0
        for one in listed:
            size_bytes += len(one.model_dump_json())
            if size_bytes > REPLY_BYTES_LIMIT:
                break
            fitting += 1
        return CheckpointsReply(checkpoints=listed[:fitting], fence=job.fence)

    async def _raise_fence(self, asked: RestoreRequest) -> None:
        """In a transaction of its own, before anything is chosen: what comes later from older attempts is void."""
        async with self._ledger.transaction() as tx:
            await _check_holder(tx.conn, asked)
            job = await store.lock_job(tx.conn, asked.job_id, asked.tenant)
            if job.tenant != asked.tenant:
                msg = f"job {asked.job_id} belongs to tenant {job.tenant}, not to {asked.tenant}"
                raise Problem(ProblemCode.INVALID, msg)
            sweep_at = self._clock.now() + self._orphan_after
            await store.raise_fence(tx.conn, asked.job_id, asked.attempt, sweep_at)

    async def _find(self, asked: RestoreRequest) -> Checkpoint | None:
        try:
            return await self._restorer.find(asked.job_id, asked.attempt)
        except Busy as busy:
            raise Problem(ProblemCode.UNAVAILABLE, str(busy)) from busy
        except ObjectsError as error:
            msg = f"the checkpoints of job {asked.job_id} cannot be read now: {error}"
            raise Problem(ProblemCode.UNAVAILABLE, msg) from error

    async def _grant(
        self, tx: Tx[Connection], seen: Snapshot, found: Checkpoint | None, asked: RestoreRequest
    ) -> RestoreReply:
        if found is not None:
            current = seen.find(*found.place)
            if current is None or current.phase is not Phase.COMMITTED:
                self._restorer.forget(asked.job_id, asked.attempt)
                msg = f"step {found.step} of job {asked.job_id} has just been replaced: ask again"
                raise Problem(ProblemCode.UNAVAILABLE, msg)
            problem = mismatch(found, asked.binding, asked.members)
            if problem is not None:
                return RestoreReply(granted=False, message=problem)
        now = self._clock.now()
        grant = Grant(asked.attempt, found.step if found else None, found.attempt if found else None)
        await store.add_grant(tx.conn, asked.job_id, grant, now)
        with spans.span("restore checkpoint"):
            spans.annotate(job=asked.job_id, node=asked.node, tenant=asked.tenant, attempt=asked.attempt)
            spans.put(**{"farside.step": grant.step, "farside.from_attempt": grant.from_attempt})
            origin = Origin(f"/farside/agent/{asked.node}", context.current())
            teller = Teller(tx, now, self._orphan_after)
            await teller.apply(overtaken(seen.checkpoints, seen.job.fence), origin)
            await teller.tell_restored(asked.job_id, asked.tenant, grant, origin)
        return _granted(found)


def _reply(seen: Snapshot, grant: Grant, asked: RestoreRequest) -> RestoreReply:
    """The answer to another member, or to the same one again: what the attempt was granted before."""
    if grant.step is None:
        return _granted(None)
    checkpoint = seen.find(grant.from_attempt, grant.step)
    if checkpoint is None or checkpoint.phase is not Phase.COMMITTED:
        msg = f"attempt {asked.attempt} was granted step {grant.step}, which is gone: start a new attempt"
        return RestoreReply(granted=False, message=msg)
    problem = mismatch(checkpoint, asked.binding, asked.members)
    if problem is not None:
        return RestoreReply(granted=False, message=problem)
    return _granted(checkpoint)


def _granted(checkpoint: Checkpoint | None) -> RestoreReply:
    if checkpoint is None:
        return RestoreReply(granted=True, message="nothing to restore: start from the beginning")
    return RestoreReply(
        granted=True, step=checkpoint.step, from_attempt=checkpoint.attempt, shards=list(checkpoint.shards)
    )


async def _check_holder(conn: Connection, said: AttemptRef | RestoreRequest) -> None:
    """Hear a node about the members that it holds only. Raises NotYet while the placement was not read."""
    holders = await store.holders(conn, said.job_id, said.attempt, said.member)
    if not holders:
        raise NotYet(not_placed(said))
    words = foreign(said, holders)
    if words is not None:
        raise Refused(words)


def _check_shard(saved: AttemptSaved, uri: str) -> None:
    """A shard lies where its attempt may write and nowhere else; another place could be somebody else's object."""
    if saved.shard.member != saved.member or saved.shard.uri != uri:
        msg = f"member {saved.member} reports shard {saved.shard.uri} of member {saved.shard.member}, expected is {uri}"
        raise Refused(msg)


def _check_tenant(job: Job, tenant: str) -> None:
    if job.tenant != tenant:
        msg = f"job {job.job_id} belongs to tenant {job.tenant}, the message names {tenant}"
        raise Refused(msg)
