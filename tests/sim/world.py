"""A world: services, agents and tenants of one seed, from the first submission until all has ended."""

from collections.abc import Collection

from services.metering.core.judge import gpu_ms
from services.scheduler.core.model import Job
from tests.sim.agent import Agent, Desks
from tests.sim.books import Books
from tests.sim.bus import Bus, Mail
from tests.sim.checkpoint import Checkpoints
from tests.sim.cycle import Cycle
from tests.sim.faults import Faults, Rates
from tests.sim.inventory import Inventory
from tests.sim.ledger import Service
from tests.sim.loop import SECOND, Loop, at
from tests.sim.machine import Work
from tests.sim.metering import Metering
from tests.sim.names import job_id, job_name
from tests.sim.scheduler import Scheduler
from tests.sim.settings import Cores, Times
from tests.sim.story import Story
from tests.sim.truth import Truth
from tests.sim.workload import Ask, Scene, Trouble

QUIET_MS = 3600 * SECOND
SETTLE_MS = 400 * SECOND


class World:
    """Everything of one run. `kept`: names of the faults, troubles and jobs that are part of it, None all."""

    def __init__(
        self,
        scene: Scene,
        seed: int,
        *,
        rates: Rates | None = None,
        times: Times | None = None,
        cores: Cores | None = None,
        kept: Collection[str] | None = None,
        silent: bool = False,
        lean: bool = False,
    ) -> None:
        self.loop = Loop()
        self.story = Story(silent)
        self.faults = Faults(seed, rates or Rates(), kept)
        self.truth = Truth(self.loop)
        self.bus = Bus(self.loop, self.faults, self.story)
        self.times, cores = times or Times(), cores or Cores()
        self.told_ms: dict[tuple[str, int], int] = {}
        self._scene = scene
        self._lean = lean
        self.works = dict(scene.works)
        self._sent = 0
        self.books = Books(lean=lean)
        self.inventory = Inventory(self.bus, self.truth, self.times, cores)
        self.scheduler = Scheduler(self.bus, self.truth, self.times, cores, scene.tenants, self.books)
        self.checkpoints = Checkpoints(self.bus, self.truth, cores, self._committed)
        self.metering = Metering(self.bus, self.truth, cores)
        self.cycle = Cycle(self.scheduler, self.times, self._gone)
        self.agents: dict[str, Agent] = {}
        self._add_agents()

    @property
    def services(self) -> dict[str, Service]:
        """The services by name."""
        found = (self.scheduler, self.inventory, self.checkpoints, self.metering)
        return {service.name: service for service in found}

    def _add_agents(self) -> None:
        desks = Desks(
            self.scheduler.claim, self.checkpoints.restore, self._work, self.inventory, self.truth, self.told_ms
        )
        for number, facts in enumerate(self._scene.nodes, start=1):
            agent = Agent(facts, number, self.bus, self.times, desks)
            name = f"skew: clock of {facts.node} is {self._scene.skews_ms.get(facts.node, 0) / SECOND:g} s ahead"
            if self._scene.skews_ms.get(facts.node) and self.faults.plans(name):
                agent.machine.skew_ms = self._scene.skews_ms[facts.node]
            self.agents[facts.node] = agent
            self.loop.after(number % self.times.heartbeat_s * 211 + number, agent.start)

    def _work(self, job: str, attempt: int) -> Work:
        assert attempt
        return self.works[job]

    def _committed(self, job: str) -> None:
        self.scheduler.board.saved(job, self.loop.now)

    def _gone(self, job: Job) -> bool:
        """Drop a job that finished long ago, its sums checked; in a small world it stays, to be looked at."""
        if not self._lean:
            return False
        id_, attempts = job.spec.job_id, job.attempts
        for attempt in range(1, attempts + 1):
            told_ms = self.told_ms.pop((id_, attempt), None)
            if told_ms is not None:
                self.check_attempt(id_, attempt, told_ms)
        self.checkpoints.forget_job(id_, attempts)
        self.metering.forget_job(id_, attempts)
        self.books.forget(job)
        self.truth.forget(id_)
        self.works.pop(id_, None)
        return True

    # ---- what is planned

    def plan(self) -> None:
        """Put what the seed has planned into the loop."""
        for ask in self._scene.asks:
            if self.faults.plans(f"job: {ask.number}"):
                self.loop.at(ask.at_ms, self.ask, ask)
        for trouble in self._scene.troubles:
            if self.faults.plans(trouble.name):
                self.loop.at(trouble.at_ms, self._befall, trouble)

    def ask(self, ask: Ask) -> None:
        """A tenant publishes a command."""
        assert ask.spec is not None
        self._sent += 1
        tenant, job = ask.spec.tenant, job_id(ask.number)
        self.story.tell(self.loop.now_ms, f"tenant {tenant}: {ask.what} {job_name(job)}", job_name(job))
        body = ask.spec if ask.what == "submit" else (tenant, job, at(self.loop.now_ms))
        mail = Mail(self.bus.next_id(), f"jobs.{ask.what}", tenant, job_name(job), ask.at_ms, body)
        self.bus.publish(mail)

    def _befall(self, trouble: Trouble) -> None:
        until_ms = self.loop.now_ms + trouble.for_ms
        if trouble.kind == "service is away":
            self.story.tell(self.loop.now_ms, f"-- {trouble.name}", trouble.whom)
            self.services[trouble.whom].go_away(until_ms)
        elif trouble.kind == "hub is away":
            self.story.tell(self.loop.now_ms, f"-- {trouble.name}", *sorted(self.agents))
            self.bus.up = False
            self.loop.at(until_ms, self._hub_is_back)
        else:
            self.story.tell(self.loop.now_ms, f"-- {trouble.name}", trouble.whom)
            agent = self.agents[trouble.whom]
            act = {
                "agent crashes": agent.crash,
                "agent is stopped": agent.stop_process,
                "machine freezes": agent.freeze,
                "machine loses power": agent.power_off,
                "link is cut": agent.cut,
            }[trouble.kind]
            act(until_ms)

    def _hub_is_back(self) -> None:
        """What it kept in memory is gone."""
        self.bus.up = True
        self.inventory.stream.restart()

    # ---- running

    def run(self, storm_ms: int, quiet_ms: int = QUIET_MS) -> None:
        """Trouble until `storm_ms`, then peace until all has ended, `quiet_ms` at most; then look at the sums."""
        self.plan()
        while self.loop.step(storm_ms):
            pass
        self.faults.calm = True
        self.loop.at(storm_ms, lambda: None)
        end_ms = storm_ms + quiet_ms
        while not self._over() and self.loop.step(end_ms):
            pass
        self.truth.all_ended(self.scheduler.jobs)
        self.settle()

    def settle(self) -> None:
        """Let what is still under way arrive, then look at the sums."""
        settle_ms = self.loop.now_ms + SETTLE_MS
        while self.loop.step(settle_ms):
            pass
        self.check_sums()

    def _over(self) -> bool:
        return self.loop.acts % 64 == 0 and all(job.finished for job in self.scheduler.jobs.values())

    def check_sums(self) -> None:
        """What was told of each attempt is in metering's tables once, and lies within what was charged."""
        for (job, attempt), told_ms in self.told_ms.items():
            self.check_attempt(job, attempt, told_ms)
        ended: dict[str, int] = {}
        for held in self.books.held.values():
            ended[held.tenant] = ended.get(held.tenant, 0) + held.card_ms(self.loop.now_ms)
        for tenant, card_ms in ended.items():
            words = f"tenant {tenant} held {card_ms} card-ms, its ledger says {self.books.ended_ms[tenant]}"
            self.truth.hold("the ledger equals what was held", true=card_ms == self.books.ended_ms[tenant], words=words)
        stored = sum(gpu_ms(sample.measured.row) for sample in self.metering.samples.values())
        apart = sum(self.metering.card_ms(*key)[0] for key in self.told_ms)
        words = f"samples stand for {stored} ms, those of all attempts for {apart}"
        self.truth.hold("each sample counts once", true=stored == apart, words=words)

    def check_attempt(self, job: str, attempt: int, told_ms: int) -> None:
        """The sums of one attempt."""
        counted, refused = self.metering.card_ms(job, attempt)
        name = f"attempt {attempt} of {job_name(job)}"
        words = f"{name} measured {told_ms} card-ms, metering has {counted} that count and {refused} refused"
        self.truth.hold("each sample counts once", job_name(job), true=counted + refused == told_ms, words=words)
        charged = self.books.charged_ms(job, attempt)
        words = f"{name} is charged {charged} card-ms, {counted} were measured and count"
        self.truth.hold("what is billed was held", job_name(job), true=counted <= charged, words=words)
