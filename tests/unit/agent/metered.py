"""A journal with a meter on a machine whose clocks the test moves."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from contracts.attempts import ExitCause
from contracts.jobs import JobKind, Member, OnPartition
from contracts.nodes import Card, CardSource
from contracts.usage import UsageItem, UsageMeasured, UsageRow
from contracts.work import WorkRun
from libs.bus import SqliteLedger
from libs.telemetry import context
from libs.telemetry.context import Trace
from services.agent.core.model import (
    AttemptKey,
    Claimed,
    Drained,
    Ended,
    Event,
    Inputs,
    Offered,
    Prepared,
    Speaker,
    StopAsked,
    StopOrder,
    TaskEnded,
    TaskSeen,
)
from services.agent.journal import Journal
from services.agent.meter import Meter
from tests.unit.agent.test_core import RUN

PERIOD_S = 60
START = datetime(2026, 11, 30, 9, 0, 20, 123_456, tzinfo=UTC)
LIFE = Trace(f"00-{1:032x}-{2:016x}-03", f"00-{1:032x}-{3:016x}-03")
CARDS = [
    Card(index=n, uuid=f"GPU-{n}", model="A100", memory_bytes=80 << 30, source=CardSource.DECLARED) for n in range(2)
]
YES = Claimed(granted=True, go=False, rendezvous=None, message="", epoch=1)
GO = Claimed(granted=True, go=True, rendezvous=None, message="", epoch=1)
GO_ANEW = replace(GO, epoch=2)


@dataclass
class Machine:
    """A machine whose time of day and time since boot the test moves apart."""

    wall: datetime = START
    boot_s: float = 1000.0
    boot: str = "boot-1"
    leases: dict[int, float] = field(default_factory=lambda: {1: 1e9})

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.boot_s

    def passes(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.boot_s += seconds

    def steps(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)

    def reboots(self, off_s: float) -> None:
        self.wall += timedelta(seconds=off_s)
        self.boot_s, self.boot = 5.0, "boot-2"
        self.leases = {2: 1e9}


@dataclass
class Node:
    """One journal file, and agents that come and go on it."""

    ledger: SqliteLedger
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        self.agent()

    def agent(self) -> None:
        """A new start of the agent."""
        me, machine = Speaker("central-1", "00000000-0000-7000-8000-000000000001"), self.machine
        self.meter = Meter(
            me, CARDS, PERIOD_S, machine, machine.leases.get, boottime=machine.monotonic, boot=machine.boot
        )
        self.journal = Journal(self.ledger.transaction, me, machine, self.meter)

    async def awake(self, seconds: float) -> None:
        """Time passes while the agent looks at its clock every second."""
        whole, rest = divmod(seconds, 1)
        for step in (*[1.0] * int(whole), rest):
            self.machine.passes(step)
            async with self.ledger.transaction() as tx:
                self.meter.now(tx.conn)

    async def prepare(self, run: WorkRun) -> None:
        await self.claim(run)
        await self.apply(run, Prepared(Inputs()))

    async def stop(self, run: WorkRun) -> None:
        """The attempt never starts."""
        await self.apply(run, StopAsked(key_of(run), run.tenant, StopOrder(ExitCause.STOPPED, 1, "cancelled")))

    async def apply(self, run: WorkRun, *events: Event) -> None:
        await self.journal.apply(key_of(run), *events)

    async def claim(self, run: WorkRun) -> None:
        with context.use(LIFE):
            await self.apply(run, Offered(run, "127.0.0.1:1"))
        await self.apply(run, YES)

    async def run_task(self, run: WorkRun) -> None:
        await self.claim(run)
        await self.apply(run, Prepared(Inputs()), GO, TaskSeen(self.machine.now()))

    async def end(self, run: WorkRun, *, ended_at: datetime | None = None, unseen: bool = False) -> None:
        ended = Ended(ExitCause.COMPLETED, 0, "", START, ended_at or self.machine.now(), unseen)
        await self.apply(run, TaskEnded(ended), Drained())

    async def look(self, *alive: WorkRun) -> bool:
        async with self.ledger.transaction() as tx:
            return self.meter.measure(tx, {key_of(run) for run in alive}, self.meter.now(tx.conn))

    async def sent(self) -> list[UsageMeasured]:
        outbox = await self.ledger.waiting(10_000, ())
        return [UsageMeasured.model_validate_json(row.data) for row in outbox if ".measured." in row.subject]

    async def rows(self, run: WorkRun) -> list[UsageRow]:
        found = [row for body in await self.sent() for row in body.rows if row.job_id == run.job_id]
        names = [(row.attempt, row.member, row.card, row.item, row.window_start) for row in found]
        assert len(set(names)) == len(names), "an identity came twice"
        return [row for row in found if row.item is UsageItem.GPU_MS]


def job(number: int, *cards: int, share_milli: int | None = None) -> WorkRun:
    member = RUN.members[0]
    members = [Member(index=0, node=member.node, tier=member.tier, cards=list(cards), share_milli=share_milli)]
    return RUN.model_copy(update={"job_id": f"00000000-0000-7000-8000-{number:012d}", "members": members})


def keeps(run: WorkRun) -> WorkRun:
    """The same offer, of a job that keeps running unseen."""
    changes = {"kind": JobKind.INFERENCE, "on_partition": OnPartition.KEEP, "max_runtime_s": None}
    return run.model_copy(update={"spec": run.spec.model_copy(update=changes)})


def key_of(run: WorkRun) -> AttemptKey:
    return AttemptKey(run.job_id, run.attempt, run.member)


def held_ms(rows: Sequence[UsageRow]) -> int:
    return sum(row.quantity for row in rows)


def joined(rows: Sequence[UsageRow]) -> bool:
    """Whether each row begins where the one before it ended."""
    return all(row.window_end == after.window_start for row, after in pairwise(rows))
