"""Whatever order events come in, and however often: at most one attempt runs, terminal is final, versions grow.

The machine plays scheduler, nodes and the network at once: it keeps every message that nodes might send and delivers
them in any order, twice or late. `alive` holds the (attempt, member) pairs that were told to go and have not ended; a
node that is declared lost has run out of its lease before.
"""

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.attempts import ExitCause
from contracts.base import Priority, Reason, ReasonCode, Tier
from contracts.jobs import JobPhase
from services.scheduler.core.admission import admit
from services.scheduler.core.attempts import claim
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import (
    Allocate,
    Cancel,
    Decision,
    Event,
    Exited,
    Free,
    Hold,
    Intent,
    Job,
    Limits,
    NodeBack,
    NodeLost,
    Offer,
    Place,
    Preempt,
    Publish,
    Release,
    Reprioritize,
    Seat,
    Started,
    StopMember,
    Tick,
    Wait,
)
from services.scheduler.core.transitions import TRANSITIONS
from tests.unit.scheduler.builders import INCARNATION, NOW, OTHER_INCARNATION, claim_of, spec

NODES = ("central-1", "central-2", "central-3")
PAIRS = (("central-1", "central-2"), ("central-2", "central-3"), ("central-3", "central-1"))
LIMITS = Limits(max_losses=1000, reconcile_grace_s=30)
WAIT = Reason(code=ReasonCode.WAITING_FOR_CARDS, message="", resource="cards")
Run = tuple[int, int]


class Life(RuleBasedStateMachine):
    """One job of two members on three nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.now: datetime = NOW
        self.job: Job = admit(spec(members=2, retries=50), Intent(), NOW, LIMITS).job
        self.offers: list[tuple[Job, int, str]] = []
        self.alive: dict[Run, str] = {}
        self.claimed: set[Run] = set()
        self.mail: list[Event] = []
        self.cards: dict[tuple[str, int], Run] = {}

    @initialize(keep=st.booleans())
    def submit(self, keep: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        changes = {"kind": "inference", "on_partition": "keep", "max_runtime_s": None} if keep else {}
        self.job = admit(spec(members=2, retries=50, **changes), Intent(), NOW, LIMITS).job

    def take(self, decision: Decision) -> None:
        before, self.job = self.job, decision.job
        published = [effect.job for effect in decision.effects if isinstance(effect, Publish)]
        assert self.job.version == before.version + len(published)
        assert self.job.attempts in {before.attempts, before.attempts + 1}
        if published:
            assert self.job.phase in TRANSITIONS[before.phase]
        if before.phase is JobPhase.FINISHED:
            assert self.job == before
        for effect in decision.effects:
            match effect:
                case Allocate(number, member):
                    for card in member.seat.cards:
                        assert (member.seat.node, card) not in self.cards, "a card is given twice"
                        self.cards[member.seat.node, card] = (number, member.index)
                case Free(number, member, _):
                    self.cards = {c: r for c, r in self.cards.items() if r != (number, member.index)}
                case Offer(job, _, member):
                    self.offers.append((job, member.index, member.seat.node))
                case StopMember():
                    self.mail.append(Exited(effect.attempt, effect.member, effect.node, ExitCause.STOPPED, 143))
                case _:
                    pass

    def send(self, event: Event) -> None:
        self.take(decide(self.job, event, self.now, LIMITS))

    @rule(seconds=st.sampled_from([1, 40, 400]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.send(Tick())

    @rule(pair=st.sampled_from(PAIRS))
    def place(self, pair: tuple[str, str]) -> None:
        """As the placer would: on cards that are free."""
        if not {node for node, _ in self.cards} & set(pair):
            self.send(Place(tuple(Seat(node, Tier.CENTRAL, (0, 1)) for node in pair)))

    @rule(pair=st.sampled_from(PAIRS), members=st.sampled_from([(0, 1), (1, 0), (1,)]))
    def launch(self, pair: tuple[str, str], members: tuple[int, ...]) -> None:
        """A placement that is taken up at once, wholly or in part."""
        self.now += timedelta(milliseconds=1)
        self.send(Release(self.now))
        self.place(pair)
        for member in members:
            newest = [offer for offer in self.offers if offer[1] == member and offer[0].attempts == self.job.attempts]
            if newest:
                self.take_up(*newest[-1], INCARNATION)

    @precondition(lambda self: bool(self.offers))
    @rule(data=st.data(), restarted=st.booleans())
    def claim(self, data: st.DataObject, restarted: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        offer = data.draw(st.sampled_from(self.offers))
        self.take_up(*offer, OTHER_INCARNATION if restarted else INCARNATION)

    def take_up(self, job: Job, member: int, node: str, incarnation: str) -> None:
        asked = claim_of(job, member, node=node, incarnation=incarnation)
        decision, reply = claim(self.job, asked, self.now, LIMITS)
        self.take(decision)
        run = (asked.attempt, member)
        if reply.granted:
            self.claimed.add(run)
        if reply.go:
            known = self.alive.get(run)
            assert known in {None, incarnation}, "two starts of a node were told to go"
            attempt = self.job.attempt
            assert attempt is not None
            if not attempt.members[member].ended:
                self.alive[run] = incarnation
                self.mail.append(Started(asked.attempt, member, node))

    @precondition(lambda self: bool(self.alive))
    @rule(data=st.data(), cause=st.sampled_from([ExitCause.COMPLETED, ExitCause.FAILED, ExitCause.KILLED]))
    def exits(self, data: st.DataObject, cause: ExitCause) -> None:
        attempt, member = data.draw(st.sampled_from(sorted(self.alive)))
        node = next(n for job, m, n in self.offers if (job.attempts, m) == (attempt, member))
        self.mail.append(Exited(attempt, member, node, cause, 0 if cause is ExitCause.COMPLETED else 1))

    @precondition(lambda self: bool(self.mail))
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Any message sent so far, in any order, as often as it likes."""
        event = data.draw(st.sampled_from(self.mail))
        if isinstance(event, Exited):
            self.alive.pop((event.attempt, event.member), None)
            self.claimed.discard((event.attempt, event.member))
        self.send(event)

    @rule(node=st.sampled_from(NODES), held=st.booleans())
    def lose(self, node: str, held: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """The lease has ended what ran there, unless the job keeps running unseen."""
        if self.job.spec.on_partition == "requeue" and not held:
            self._end_all(node)
        self.send(NodeLost(node, held))

    @rule(node=st.sampled_from(NODES))
    def come_back(self, node: str) -> None:
        listed = frozenset(
            (job.attempts, member)
            for job, member, where in self.offers
            if where == node and (job.attempts, member) in self.claimed
        )
        self.send(NodeBack(node, listed, self.now))

    def _end_all(self, node: str) -> None:
        gone = {(job.attempts, member) for job, member, where in self.offers if where == node}
        self.alive = {run: start for run, start in self.alive.items() if run not in gone}
        self.claimed -= gone

    @rule(kind=st.sampled_from([Hold, Release, Wait]))
    def hold_release_or_wait(self, kind: type[Hold | Release | Wait]) -> None:
        self.now += timedelta(milliseconds=1)
        self.send(Wait(WAIT) if kind is Wait else Hold(self.now) if kind is Hold else Release(self.now))

    @rule(priority=st.sampled_from(Priority), refused=st.booleans())
    def reprioritize(self, priority: Priority, refused: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.now += timedelta(milliseconds=1)
        before = self.job
        self.send(Reprioritize(self.now, priority, WAIT if refused else None))
        if refused or before.finished:
            assert (self.job.spec, self.job.phase) == (before.spec, before.phase)
        else:
            assert self.job.spec.effective_priority is priority

    @rule(first=st.booleans())
    def preempt(self, first: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """A gang moves as one: whoever has not ended is told to stop, or was never told to begin."""
        before = self.job.attempt
        self.send(Preempt(WAIT, "j", first))
        after = self.job.attempt
        if before is not None and not self.job.finished and after is not None:
            assert after.stop is not None

    @precondition(lambda self: self.job.attempts > 2)
    @rule()
    def cancel(self) -> None:
        self.send(Cancel(""))

    @invariant()
    def one_attempt_at_most_has_cards(self) -> None:
        assert len({number for number, _ in self.cards.values()}) <= 1
        if self.job.finished or self.job.attempt is None:
            assert not self.cards

    @invariant()
    def at_most_one_attempt_runs(self) -> None:
        assert len({attempt for attempt, _ in self.alive}) <= 1


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
