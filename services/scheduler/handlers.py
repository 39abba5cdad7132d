"""The shell: what the scheduler listens to, and one transaction for each message.

Each handler loads rows, asks the core, and carries the decision out. Placing is not done here; see cycle.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contracts import registry
from contracts.attempts import AttemptExited, AttemptHung, AttemptProgressed, AttemptReady, AttemptRef, AttemptStarted
from contracts.checkpoints import CheckpointCommitted
from contracts.jobs import JobCancel, JobHold, JobRelease, JobReprioritize
from contracts.nodes import NodePhase, NodeState
from contracts.requests import ClaimReply, ClaimRequest, ProblemCode
from contracts.transfers import TransferCompleted
from contracts.work import WorkStop
from libs.bus import App, Call, Event, Problem, Refused, Tx, actor_of
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from services.scheduler import allotments, store
from services.scheduler.core import attempts, model, words
from services.scheduler.core.jobs import decide
from services.scheduler.desk import Desk
from services.scheduler.effects import carry_out
from services.scheduler.store import Stored
from services.scheduler.submissions import above_top

ACTOR = "scheduler"
# Phases in which the agent is there and says truly what it holds.
THERE = frozenset(NodePhase) - {NodePhase.SUSPECT, NodePhase.LOST}
_STEPS: dict[type[model.Event], str] = {
    model.NodeLost: "lose attempt",
    model.NodeBack: "return attempt",
    model.Preempt: "drain node",
}
PgTx = Tx[Connection]


@dataclass(frozen=True)
class Scheduler:
    """Handlers and what they share."""

    desk: Desk

    @property
    def limits(self) -> model.Limits:
        """The bounds of patience."""
        return self.desk.limits

    @property
    def clock(self) -> Clock:
        """The scheduler's clock."""
        return self.desk.clock

    def register(self, app: App[Connection]) -> None:
        """The table of what is listened to."""
        app.on(registry.JOBS_CANCEL, self.on_cancel)
        app.on(registry.JOBS_HOLD, self.on_hold)
        app.on(registry.JOBS_RELEASE, self.on_release)
        app.on(registry.JOBS_REPRIORITIZE, self.on_reprioritize)
        app.on(registry.NODES_GRADED, self.on_node)
        app.on(registry.NODES_SUSPECT, self.on_node)
        app.on(registry.NODES_LOST, self.on_node)
        app.on(registry.NODES_RETURNED, self.on_node)
        app.on(registry.NODES_QUARANTINED, self.on_node)
        app.on(registry.NODES_RELEASED, self.on_node)
        app.on(registry.ATTEMPTS_STARTED, self.on_started)
        app.on_batch(registry.ATTEMPTS_PROGRESSED, self.on_progressed)
        app.on(registry.ATTEMPTS_READY, self.on_ready)
        app.on(registry.ATTEMPTS_HUNG, self.on_hung)
        app.on(registry.ATTEMPTS_EXITED, self.on_exited)
        app.on(registry.TRANSFERS_COMPLETED, self.on_transfer_completed)
        app.on_batch(registry.CHECKPOINTS_COMMITTED, self.on_committed)
        app.serve(registry.CALL_CLAIM, self.on_claim)

    # ---- commands ----------------------------------------------------------------------------------------------------

    async def on_cancel(self, tx: PgTx, event: Event[JobCancel]) -> None:
        """End the job, or remember to when it comes."""
        stored = await self._job_of_tenant(tx, event.key, event.body.job_id)
        if stored is None:
            intent = await store.load_intent(tx.conn, event.key, event.body.job_id)
            await self._remember(tx, event, replace(intent, cancel_reason=event.body.reason))
        else:
            await self._decide(tx, stored, model.Cancel(event.body.reason), actor_of(event))

    async def on_hold(self, tx: PgTx, event: Event[JobHold]) -> None:
        """Keep the job from being placed, or remember to when it comes."""
        hold = model.Hold(event.time, event.body.reason)
        stored = await self._job_of_tenant(tx, event.key, event.body.job_id)
        if stored is None:
            await self._remember_hold(tx, event, hold)
        else:
            await self._decide(tx, stored, hold, actor_of(event))

    async def on_release(self, tx: PgTx, event: Event[JobRelease]) -> None:
        """End a hold, also one that is still to come."""
        release = model.Release(event.time)
        stored = await self._job_of_tenant(tx, event.key, event.body.job_id)
        if stored is None:
            await self._remember_hold(tx, event, release)
        else:
            await self._decide(tx, stored, release, actor_of(event))

    async def on_reprioritize(self, tx: PgTx, event: Event[JobReprioritize]) -> None:
        """Change the class of the job, waiting or running, or remember to when it comes."""
        body = event.body
        stored = await self._job_of_tenant(tx, event.key, body.job_id)
        if stored is not None:
            refused = above_top(self.desk.book, event.key, body.priority)
            asked = model.Reprioritize(event.time, body.priority, refused)
            await self._decide(tx, stored, asked, actor_of(event))
            return
        intent = await store.load_intent(tx.conn, event.key, body.job_id)
        if intent.priority_changed_at is None or event.time > intent.priority_changed_at:
            await self._remember(tx, event, replace(intent, priority=body.priority, priority_changed_at=event.time))

    async def _job_of_tenant(self, tx: PgTx, tenant: str, job_id: str) -> Stored | None:
        await store.lock_job_id(tx.conn, job_id)
        stored = await store.load_job(tx.conn, job_id)
        return stored if stored is not None and stored.job.spec.tenant == tenant else None

    async def _remember_hold(
        self, tx: PgTx, event: Event[JobHold] | Event[JobRelease], asked: model.Hold | model.Release
    ) -> None:
        intent = await store.load_intent(tx.conn, event.key, event.body.job_id)
        if intent.hold_changed_at is None or asked.at > intent.hold_changed_at:
            held = isinstance(asked, model.Hold)
            reason = asked.reason if isinstance(asked, model.Hold) else ""
            await self._remember(tx, event, replace(intent, held=held, hold_reason=reason, hold_changed_at=asked.at))

    async def _remember(
        self,
        tx: PgTx,
        event: Event[JobCancel] | Event[JobHold] | Event[JobRelease] | Event[JobReprioritize],
        intent: model.Intent,
    ) -> None:
        await store.save_intent(tx.conn, event.key, event.body.job_id, intent, self.clock.now())

    async def _decide(self, tx: PgTx, stored: Stored, event: model.Event, actor: str, step: str = "decide job") -> None:
        decision = decide(stored.job, event, self.clock.now(), self.limits)
        await carry_out(tx, stored, decision, actor=actor, limits=self.limits, step=step)

    # ---- attempts ----------------------------------------------------------------------------------------------------

    async def on_claim(self, tx: PgTx, call: Call[ClaimRequest]) -> ClaimReply:
        """A node takes up an offer."""
        body = call.body
        node = await allotments.lock_node(tx.conn, body.node)
        stored = await store.load_job(tx.conn, body.job_id)
        if stored is None or stored.job.spec.tenant != body.tenant:
            return ClaimReply(granted=False, message=f"job {body.job_id} of tenant {body.tenant} is not known")
        claim = model.Claim(body.attempt, body.generation, body.member, body.node, body.incarnation, body.endpoint)
        decision, reply = attempts.claim(stored.job, claim, self.clock.now(), self.limits)
        if reply.granted:
            self._check_ready(body.node, node)
        await carry_out(tx, stored, decision, actor=_agent(body.node), limits=self.limits)
        return reply

    @staticmethod
    def _check_ready(name: str, node: allotments.NodeHead | None) -> None:
        """Grant nothing to a node that inventory may be about to call lost: its agent asks again."""
        if node is None or node.state != NodePhase.READY:
            state = "unknown" if node is None else node.state
            text = f"node {name} is {state}: its claim is granted once inventory calls it ready"
            raise Problem(ProblemCode.UNAVAILABLE, text)

    async def on_started(self, tx: PgTx, event: Event[AttemptStarted]) -> None:
        """A process exists; one that may not is stopped."""
        body = event.body
        stored = await self._job_of_attempt(tx, body)
        if stored is None:
            self._stop_unknown(tx, body)
        else:
            await self._decide(tx, stored, model.Started(body.attempt, body.member, body.node), _agent(body.node))

    def _stop_unknown(self, tx: PgTx, body: AttemptStarted) -> None:
        """A process of a job that is not there at all."""
        stop = WorkStop(
            job_id=body.job_id,
            tenant=body.tenant,
            attempt=body.attempt,
            member=body.member,
            grace_s=0,
            reason=f"job {body.job_id} is not known to the scheduler",
        )
        get_logger().warning("attempt.unknown_job", job=body.job_id, node=body.node)
        tx.emit(registry.WORK_STOP, stop, key=body.node, subject=body.job_id, sequence=1, actor=ACTOR)

    async def on_ready(self, tx: PgTx, event: Event[AttemptReady]) -> None:
        """An inference attempt serves."""
        body = event.body
        stored = await self._job_of_attempt(tx, body)
        if stored is not None:
            ready = model.Ready(body.attempt, body.member, body.node, body.endpoint)
            await self._decide(tx, stored, ready, _agent(body.node))

    async def on_hung(self, tx: PgTx, event: Event[AttemptHung]) -> None:
        """No progress for too long."""
        body = event.body
        stored = await self._job_of_attempt(tx, body)
        if stored is not None:
            hung = model.Hung(body.attempt, body.member, body.node, body.silent_s)
            await self._decide(tx, stored, hung, _agent(body.node))

    async def on_exited(self, tx: PgTx, event: Event[AttemptExited]) -> None:
        """A process group is gone."""
        body = event.body
        stored = await self._job_of_attempt(tx, body)
        if stored is not None:
            exited = model.Exited(body.attempt, body.member, body.node, body.cause, body.exit_code, body.message)
            await self._decide(tx, stored, exited, _agent(body.node))

    async def on_progressed(self, tx: PgTx, events: Sequence[Event[AttemptProgressed]]) -> None:
        """Keep the newest step of live attempts, told by the nodes that hold them; no transition."""
        bodies = [event.body for event in events]
        steps = [(b.job_id, b.attempt, b.member, b.node, max(point.step for point in b.points)) for b in bodies]
        await store.save_progress(tx.conn, steps)

    async def _job_of_attempt(self, tx: PgTx, body: AttemptRef) -> Stored | None:
        stored = await store.load_job(tx.conn, body.job_id)
        if stored is not None and stored.job.spec.tenant != body.tenant:
            msg = f"job {body.job_id} belongs to another tenant than {body.tenant}"
            raise Refused(msg)
        return stored

    # ---- nodes and datasets ------------------------------------------------------------------------------------------

    async def on_node(self, tx: PgTx, event: Event[NodeState]) -> None:
        """Keep the newest state of a node, and let the jobs there know what it means for them."""
        state = event.body
        before = await allotments.lock_node(tx.conn, state.node)
        if not await allotments.save_node(tx.conn, state):
            return
        if state.state is NodePhase.LOST:
            lost = model.NodeLost(state.node, state.requeue_held)
            await self._tell_jobs(tx, event, dict.fromkeys(await allotments.jobs_on_node(tx.conn, state.node), lost))
        elif state.state in THERE:
            if before is None or _is_back(event, before):
                await self._tell_jobs(tx, event, await self._returned(tx, state))
            if state.state is NodePhase.DRAINING:
                leave = model.Preempt(words.draining(state.node, state.reason), first=True)
                jobs = await allotments.jobs_on_node(tx.conn, state.node)
                await self._tell_jobs(tx, event, dict.fromkeys(jobs, leave))

    async def _returned(self, tx: PgTx, state: NodeState) -> dict[str, model.Event]:
        """What a node that is back says of each job that it holds, or should."""
        listed: dict[str, set[tuple[int, int]]] = {}
        for held in state.attempts:
            listed.setdefault(held.job_id, set()).add((held.attempt, held.member))
        there = {*await allotments.jobs_on_node(tx.conn, state.node), *listed}
        return {
            job_id: model.NodeBack(state.node, frozenset(listed.get(job_id, ())), state.since, state.incarnation)
            for job_id in sorted(there)
        }

    async def _tell_jobs(self, tx: PgTx, event: Event[NodeState], told: Mapping[str, model.Event]) -> None:
        for job_id, what in told.items():
            stored = await store.load_job(tx.conn, job_id)
            if stored is None:
                get_logger().warning("attempt.unknown_job", job=job_id, node=event.body.node)
            else:
                await self._decide(tx, stored, what, actor_of(event), _STEPS[type(what)])

    async def on_committed(self, tx: PgTx, events: Sequence[Event[CheckpointCommitted]]) -> None:
        """Keep when the work of live attempts was last safe; no transition."""
        bodies = [event.body for event in events]
        await store.save_saved(tx.conn, [(b.job_id, b.attempt, b.committed_at) for b in bodies])

    async def on_transfer_completed(self, tx: PgTx, event: Event[TransferCompleted]) -> None:
        """A dataset version is staged: jobs that wait for it may be placed."""
        await store.add_dataset(tx.conn, event.body)


def _agent(node: str) -> str:
    return f"agent/{node}"


def _is_back(event: Event[NodeState], before: allotments.NodeHead) -> bool:
    """Whether the list of attempts is to be compared: the node was away, or its agent has started anew."""
    away = before.state in {NodePhase.SUSPECT, NodePhase.LOST}
    return away or event.message is registry.NODES_RETURNED or event.body.incarnation != before.incarnation
