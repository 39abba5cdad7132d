"""What must hold, whatever goes wrong; checked from what is seen from outside, with nothing of the services' own.

Each method is told one thing that happened, at the commit that made it true, and raises `Broken` where it may not be.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from contracts.jobs import JobPhase, Outcome
from contracts.nodes import NodePhase
from services.scheduler.core.arrays import CARD
from services.scheduler.core.model import Job, MemberRun
from tests.sim.loop import Loop, ms_of
from tests.sim.names import job_name, job_number
from tests.sim.story import Broken

Run = tuple[str, int, int]  # job, attempt, member


def _nobody(job: Job, wait_ms: int) -> None:
    """Nobody wants to know how long a job has waited."""


@dataclass
class Task:
    """A process that does work of a member. `zombie`: its lease has passed and it will be killed at once."""

    node: str
    cards: tuple[int, ...]
    share: int
    keeps: bool
    zombie: bool = False


@dataclass
class JobFacts:
    """What was seen of a job so far."""

    version: int = 0
    attempts: int = 0
    phase: JobPhase | None = None
    seats: tuple[object, ...] = ()
    claimed: frozenset[int] = frozenset()
    fence: int = 0
    committed: int = 0
    held: dict[int, int] = field(default_factory=dict[int, int])
    preempted: int = 0


class Truth:
    """The invariants, and how often each was looked at."""

    def __init__(self, loop: Loop) -> None:
        self.checked: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.finished = 0
        self.preemptions = 0
        self.given = 0
        self.given_ms = 0
        self.waited: Callable[[Job, int], None] = _nobody
        self._given_at = 0
        self.resumed = 0
        self.tasks: dict[Run, Task] = {}
        self.jobs: dict[str, JobFacts] = {}
        self._loop = loop
        self._finished = bytearray(1024)
        self._answers: set[int] = set()
        self._nodes: dict[str, int] = {}
        self._given: dict[tuple[str, int], int] = {}
        self._busy: dict[tuple[str, int], int] = {}
        self._on_node: dict[str, dict[Run, None]] = {}
        self._runs: dict[str, dict[Run, None]] = {}

    def hold(self, invariant: str, *about: str, true: bool, words: str | Callable[[], str]) -> None:
        """Check one thing."""
        self.checked[invariant] += 1
        if not true:
            raise Broken(invariant, words if isinstance(words, str) else words(), *about)

    # ---- jobs

    def answered(self, mail: int, job_id: str, *, accepted: bool) -> None:
        """A submission became a job or was refused."""
        what = "accepted" if accepted else "rejected"
        self.hold(
            "each submission is answered once",
            job_name(job_id),
            true=mail not in self._answers,
            words=f"the same submission of {job_name(job_id)} is {what} after it was answered",
        )
        self._answers.add(mail)
        if accepted:
            self.jobs[job_id] = JobFacts()

    def published(self, job: Job) -> None:
        """A transition of a job is told."""
        job_id, name = job.spec.job_id, job_name(job.spec.job_id)
        number = job_number(job_id)
        over = number < len(self._finished) and self._finished[number] == 1
        words = f"{name} is {job.phase} after it had finished"
        self.hold("a job ends once", name, true=not over, words=words)
        facts = self.jobs[job_id]
        words = f"{name} goes from version {facts.version} to {job.version}"
        self.hold("versions have no gap", name, true=job.version == facts.version + 1, words=words)
        facts.version = job.version
        self._attempt(name, facts, job)
        facts.phase = job.phase
        if job.phase is JobPhase.FINISHED:
            self._finish(job, number)

    def _attempt(self, name: str, facts: JobFacts, job: Job) -> None:
        if job.attempt is None:
            return
        seats = tuple(member.seat for member in job.attempt.members)
        if job.attempt.number == facts.attempts:
            self.hold(
                "a placement does not drift",
                name,
                true=seats == facts.seats,
                words=lambda: f"attempt {facts.attempts} of {name} was placed on {facts.seats}, is now on {seats}",
            )
            return
        words = f"{name} has attempt {job.attempt.number} after {facts.attempts}"
        self.hold("attempts are numbered up", name, true=job.attempt.number == facts.attempts + 1, words=words)
        words = f"attempt {job.attempt.number} of {name} has {len(seats)} members of {job.spec.members}"
        self.hold("a gang moves as one", name, true=len(seats) == job.spec.members, words=words)
        if facts.preempted == facts.attempts and facts.attempts:
            self.resumed += 1
        if job.attempt.number == 1:
            self.waited(job, self._loop.now_ms - ms_of(job.submitted_at))
        facts.attempts, facts.seats, facts.claimed = job.attempt.number, seats, frozenset()

    def _finish(self, job: Job, number: int) -> None:
        if number >= len(self._finished):
            self._finished.extend(bytes(max(number + 1, 2 * len(self._finished)) - len(self._finished)))
        self._finished[number] = 1
        assert job.outcome is not None
        name, facts = job_name(job.spec.job_id), self.jobs[job.spec.job_id]
        resumed = facts.preempted == 0 or facts.preempted < job.attempts
        words = f"{name} has {job.outcome} after attempt {job.attempts} was preempted"
        fine = resumed or job.outcome in {Outcome.SUCCEEDED, Outcome.CANCELLED}
        self.hold("preempted work resumes", name, true=fine, words=words)
        self.ended[job.outcome.value] += 1
        self.finished += 1

    def over(self, job: Job) -> None:
        """A job has no attempt any more, or none again."""
        held, name = self.jobs[job.spec.job_id].held, job_name(job.spec.job_id)
        words = f"{name} is {job.phase} and still holds cards of members {sorted(held)}"
        self.hold("what is over holds nothing", name, true=not held, words=words)

    def preempted(self, job: Job) -> None:
        """The scheduler stops an attempt for other work."""
        self.preemptions += 1
        self.jobs[job.spec.job_id].preempted = job.attempts

    # ---- cards as the scheduler gives them

    def allocated(self, job_id: str, attempt: int, member: MemberRun) -> None:
        """A member is given its seat."""
        name, seat = job_name(job_id), member.seat
        facts = self.jobs[job_id]
        others = {number for number in facts.held.values() if number != attempt}
        words = f"attempt {attempt} of {name} is given {seat.node} while attempt {others} still holds cards"
        self.hold("one attempt holds cards", name, true=not others, words=words)
        facts.held[member.index] = attempt
        self._count(len(seat.cards) * seat.share)
        for card in seat.cards:
            given = self._given.get((seat.node, card), 0) + seat.share
            words = f"{given} of {CARD} millionths of card {card} of {seat.node} are given away"
            self.hold("no card above capacity", name, seat.node, true=given <= CARD, words=words)
            self._given[seat.node, card] = given

    def freed(self, job_id: str, member: MemberRun) -> None:
        """A member's cards are free again."""
        attempt = self.jobs[job_id].held.pop(member.index, None)
        words = f"member {member.index} of {job_name(job_id)} is freed and holds nothing"
        self.hold("cards are freed once", job_name(job_id), true=attempt is not None, words=words)
        self._count(-len(member.seat.cards) * member.seat.share)
        for card in member.seat.cards:
            self._given[member.seat.node, card] -= member.seat.share

    def _count(self, share: int) -> None:
        """Keep how much is given away, in millionths of a card, and for how long."""
        self.given_ms += self.given * (self._loop.now_ms - self._given_at)
        self.given += share
        self._given_at = self._loop.now_ms

    def claimed(self, job_id: str, attempt: int, member: int) -> None:
        """A member's claim was granted."""
        facts = self.jobs[job_id]
        if facts.attempts == attempt:
            facts.claimed |= {member}

    # ---- tasks as they run

    def task_begins(self, run: Run, task: Task, members: int) -> None:
        """A process begins to work."""
        job_id, attempt, member = run
        name, facts = job_name(job_id), self.jobs.get(job_id, JobFacts())
        others = [other for other in self._runs.get(job_id, ()) if other[1] != attempt and not self.tasks[other].zombie]
        words = f"attempt {attempt} of {name} runs on {task.node} while attempts {sorted(others)} run"
        self.hold("at most one attempt runs", name, true=not others, words=words)
        words = f"member {member} of attempt {attempt} of {name} runs twice"
        self.hold("a member runs once", name, true=run not in self.tasks, words=words)
        whole = facts.attempts != attempt or len(facts.claimed) == members
        words = f"attempt {attempt} of {name} starts with {sorted(facts.claimed)} claimed of {members} members"
        self.hold("a gang starts as one", name, true=whole, words=words)
        self.tasks[run] = task
        self._runs.setdefault(job_id, {})[run] = None
        self._on_node.setdefault(task.node, {})[run] = None
        for card in task.cards:
            busy = self._busy.get((task.node, card), 0) + task.share
            words = f"tasks on card {card} of {task.node} use {busy} of {CARD} millionths"
            self.hold("tasks share no card above capacity", name, task.node, true=busy <= CARD, words=words)
            self._busy[task.node, card] = busy

    def task_ends(self, run: Run) -> None:
        """A process is gone."""
        task = self.tasks.pop(run, None)
        if task is None:
            return
        del self._runs[run[0]][run]
        if not self._runs[run[0]]:
            del self._runs[run[0]]
        del self._on_node[task.node][run]
        if not task.zombie:
            self._release(task)

    def task_is_zombie(self, run: Run) -> None:
        """The machine of a process wakes up after the lease: it may still speak, until it is killed at once."""
        task = self.tasks[run]
        if not task.zombie:
            task.zombie = True
            self._release(task)

    def _release(self, task: Task) -> None:
        for card in task.cards:
            self._busy[task.node, card] -= task.share

    # ---- checkpoints and fences

    def granted(self, job_id: str, attempt: int, step: int | None) -> None:
        """An attempt may start, from this step."""
        facts, name = self.jobs[job_id], job_name(job_id)
        words = f"attempt {attempt} of {name} may start, after attempt {facts.fence} was let start"
        self.hold("an overtaken attempt does not start", name, true=attempt >= facts.fence, words=words)
        facts.fence = max(facts.fence, attempt)
        words = f"attempt {attempt} of {name} starts from step {step}, step {facts.committed} was committed"
        self.hold("a restore loses no committed step", name, true=(step or 0) >= facts.committed, words=words)

    def committed(self, job_id: str, attempt: int, step: int) -> None:
        """A checkpoint exists."""
        facts, name = self.jobs[job_id], job_name(job_id)
        words = f"step {step} of attempt {attempt} of {name} is committed, attempt {facts.fence} has started"
        self.hold("the fence holds", name, true=attempt >= facts.fence, words=words)
        facts.committed = max(facts.committed, step)

    # ---- nodes

    def node_told(self, node: str, version: int, phase: NodePhase | str) -> None:
        """A state of a node is told."""
        words = f"node {node} is {phase} at version {version} after {self._nodes.get(node, 0)}"
        self.hold("versions have no gap", node, true=version == self._nodes.get(node, 0) + 1, words=words)
        self._nodes[node] = version

    def node_lost(self, node: str, *, held: bool) -> None:
        """Inventory says that what ran on a node under a lease has ended."""
        there = {run: self.tasks[run] for run in self._on_node.get(node, ())}
        alive = [job_name(run[0]) for run, task in there.items() if not task.zombie and not task.keeps]
        words = f"node {node} is lost (held: {held}), {', '.join(alive)} still runs there under its lease"
        self.hold("lost means ended", node, *alive, true=not alive, words=words)

    # ---- at the end

    def all_ended(self, open_jobs: Mapping[str, Job]) -> None:
        """Faults are over and time enough has passed: nothing is left."""
        for job_id in self.jobs:
            number, name = job_number(job_id), job_name(job_id)
            over = number < len(self._finished) and self._finished[number] == 1
            job = open_jobs.get(job_id)
            state = (
                "lost" if job is None else f"{job.phase}, {job.reason.message if job.reason else 'without a reason'}"
            )
            self.hold("every accepted job ends", name, true=over, words=f"{name} is {state}")

    def forget(self, job_id: str) -> None:
        """Nothing more will come of a job; that it ended is kept."""
        self.jobs.pop(job_id, None)
