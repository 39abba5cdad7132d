"""The scheduler's cycle: deadlines, the plan of the core, and each placement checked again as it is committed."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time

from contracts.nodes import NodePhase
from services.scheduler.core.arrays import Placement, Plan, Preemption, Stay
from services.scheduler.core.decide import decide
from services.scheduler.core.demands import demand_of
from services.scheduler.core.model import Job, Place, Preempt, Tick, Wait
from services.scheduler.core.packing import Memo, Mix
from services.scheduler.core.policy import Policy
from tests.sim.ledger import GivenUpError
from tests.sim.loop import SECOND
from tests.sim.names import job_name
from tests.sim.scheduler import Scheduler
from tests.sim.settings import Times

COMMIT_MS = 20
LEARN = 1000


class Cycle:
    """Plans every `cycle_s` when something has changed; `gone` hears of jobs that are dropped."""

    def __init__(self, scheduler: Scheduler, times: Times, gone: Callable[[Job], bool]) -> None:
        self.plans = 0
        self.placed = 0
        self.stale = 0
        self.spent_s = 0.0
        self.worst_s = 0.0
        self.waiting = 0
        self.whys: Counter[str] = Counter()
        self._scheduler = scheduler
        self._loop = scheduler.loop
        self._cycle_ms = int(times.cycle_s * SECOND)
        self._gone = gone
        self._policy = Policy(grace_s=10)
        self._memo = Memo()
        self._mix = Mix()
        self._seen: tuple[int, int] | None = None
        self._again = False
        self._learn_at = 1
        self._loop.after(self._cycle_ms, self._round)

    def _round(self) -> None:
        self._loop.after(self._cycle_ms, self._round)
        scheduler = self._scheduler
        if scheduler.back_ms() is not None:
            self._memo, self._seen = Memo(), None
            return
        for job_id in scheduler.due():
            with scheduler.transaction() as tx:
                scheduler.apply(tx, job_id, Tick())
        scheduler.forget_old(self._gone)
        seen = (scheduler.commits, len(scheduler.queue))
        if scheduler.queue and (seen != self._seen or self._again or self._rest_ends()):
            self._again = False
            self._plan()
        self._seen = (scheduler.commits, len(scheduler.queue))

    def _rest_ends(self) -> bool:
        """Whether a job that rested may be placed again."""
        now, jobs = self._loop.now, self._scheduler.jobs
        return any((rest := jobs[job_id].not_before) is not None and rest <= now for job_id in self._scheduler.queue)

    def _plan(self) -> None:
        scheduler, now = self._scheduler, self._loop.now
        jobs = (scheduler.jobs[job_id] for job_id in scheduler.queue)
        waiting = [job for job in jobs if job.not_before is None or job.not_before <= now]
        if not waiting or not scheduler.nodes:
            return
        board, began = scheduler.board, process_time()
        fleet, queue = board.fleet(), board.queue(waiting)
        self._learn()
        arrays = (fleet, queue, board.running(), board.tenants(), self._mix, self._policy)
        plan = decide(*arrays, scheduler.now_us, memo=self._memo)
        spent_s = process_time() - began
        self.plans, self.spent_s = self.plans + 1, self.spent_s + spent_s
        self.worst_s, self.waiting = max(self.worst_s, spent_s), max(self.waiting, len(waiting))
        self._carry_out(plan)

    def _learn(self) -> None:
        """Take arrivals into the mix, some at a time: it is what scores are made from."""
        arrived = self._scheduler.arrived
        if len(arrived) >= self._learn_at:
            self._mix = self._mix.learn([demand_of(spec) for spec in arrived])
            arrived.clear()
            self._learn_at = min(LEARN, 2 * self._learn_at)

    def _carry_out(self, plan: Plan) -> None:
        for preemption in plan.preemptions:
            self._preempt(preemption)
        self._stay(plan.stays)
        faults, about = self._scheduler.bus.faults, f"plan {self.plans}"
        pause_ms = COMMIT_MS
        if faults.hits("slow", faults.rates.slow_plan, about):
            pause_ms = faults.amount(f"slow {about}", 200, 8 * SECOND)
        if plan.placements:
            self._loop.after(pause_ms, self._place_all, plan.placements)

    def _preempt(self, preemption: Preemption) -> None:
        scheduler, job_id = self._scheduler, preemption.job_id
        job = scheduler.jobs.get(job_id)
        if job is None or job.attempt is None or job.attempt.stop is not None:
            return
        for_whom = "" if preemption.for_job is None else f" for {job_name(preemption.for_job)}"
        scheduler.tell(f"scheduler preempts {job_name(job_id)}{for_whom} ({preemption.why})", job_id)
        self.whys[preemption.why.value] += 1
        with scheduler.transaction() as tx:
            scheduler.apply(tx, job_id, Preempt(preemption.reason))
            tx.then(partial(scheduler.truth.preempted, job))
            tx.then(partial(scheduler.board.stop, job_id, preemption.for_job))

    def _stay(self, stays: Sequence[Stay]) -> None:
        """Keep why jobs stay; only what is new."""
        scheduler = self._scheduler
        for stay in stays:
            job = scheduler.jobs.get(stay.job_id)
            if job is not None and job.version == stay.version and job.reason != stay.reason:
                with scheduler.transaction() as tx:
                    scheduler.apply(tx, stay.job_id, Wait(stay.reason))

    def _place_all(self, placements: Sequence[Placement]) -> None:
        """Each placement in a transaction of its own, one that is stale is dropped alone."""
        if self._scheduler.back_ms() is not None:
            return
        for placement in placements:
            try:
                self._place(placement)
                self.placed += 1
            except GivenUpError:
                self.stale += 1
                self._again = True

    def _place(self, placement: Placement) -> None:
        scheduler = self._scheduler
        for node, version in placement.node_versions:
            state = scheduler.nodes[node]
            if state.version != version or state.state is not NodePhase.READY:
                raise GivenUpError
        job = scheduler.jobs.get(placement.job_id)
        if job is None or job.version != placement.version or not job.placeable:
            raise GivenUpError
        with scheduler.transaction() as tx:
            scheduler.apply(tx, placement.job_id, Place(placement.seats))
            for node, _ in placement.node_versions:
                used, facts = scheduler.used[node], scheduler.nodes[node].facts
                if (
                    used.slots > scheduler.limits.node_slots
                    or used.cpu_milli > facts.cpu_milli
                    or used.memory_bytes > facts.memory_bytes
                ):
                    raise GivenUpError
