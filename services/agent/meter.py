"""The meter: what attempts hold on this node, told once for each window of the grid.

In: the journal's rows as they change, and its own clock. Out: `usage.measured` in the transaction that moves
`metered_to`, so that an agent killed at any moment repeats nothing and loses nothing.

The meter's clock is the boot clock with an offset kept in the journal: it never jumps while anything is held, whatever
is done to the time of day, and an agent started anew goes on with it.

While something is held it looks at that clock every second. A look that comes late tells that the agent was stopped.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace

from contracts import registry
from contracts.nodes import Card
from contracts.usage import UsageMeasured, UsageRow
from libs.bus import Tx
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from libs.telemetry import spans
from services.agent import holds, proctree, store
from services.agent.core import usage
from services.agent.core.model import Attempt, AttemptKey, Phase, Speaker, own_member
from services.agent.core.usage import HeldCard, Hold, Window
from services.agent.holds import MeterClock
from services.agent.settings import MIB
from services.agent.store import Transaction

WINDOWS_AT_ONCE = 32
AFTER_BOUNDARY_S = 0.01
LOOK_S = 1.0
STOPPED_MS = int(usage.STOPPED_S * 1000)


@dataclass(frozen=True)
class Moment:
    """An instant by the meter's clock, and since when the agent has been awake without a break."""

    now: int
    awake: int
    offset: int


class Meter:
    """Measures the holds of one node."""

    def __init__(
        self,
        me: Speaker,
        cards: Sequence[Card],
        period_s: int,
        clock: Clock,
        lease_end: Callable[[int], float | None],
        *,
        boottime: Callable[[], float] = proctree.boottime,
        boot: str | None = None,
    ) -> None:
        self._me = me
        self._cards = {
            card.index: HeldCard(card.index, card.uuid, card.model, card.memory_bytes // MIB) for card in cards
        }
        self._period_ms = period_s * 1000
        self._clock = clock
        self._lease_end = lease_end
        self._boottime = boottime
        self._boot = boot or proctree.boot_id()
        self._awake_ms = self._looked_ms = self._boot_ms()
        self._changed = asyncio.Event()

    def follow(self, tx: Tx[sqlite3.Connection], before: Attempt | None, after: Attempt | None) -> None:
        """The row of an attempt changes: its hold begins with the granted claim and ends with the exit."""
        if before is None or after is None or before.phase is after.phase:
            return
        if after.phase is Phase.CLAIMED:
            self._begin(tx, after)
        elif after.phase is Phase.SPAWNING:
            self._set_out(tx, before, after)
        elif after.phase is Phase.EXITED:
            self._end(tx, after)

    def now(self, conn: sqlite3.Connection) -> int:
        """The time by the meter's clock."""
        return self._moment(conn).now

    def measure(self, tx: Tx[sqlite3.Connection], alive: AbstractSet[AttemptKey], seen: int) -> bool:
        """Tell what is due of the holds that have ended, and of those `alive` at `seen`; False when nothing is left."""
        moment = self._moment(tx.conn)
        reach = {
            hold: usage.measurable(hold, seen, self._period_ms, self._lapse(hold, moment), alive=hold.key in alive)
            for hold in holds.owed(tx.conn)
        }
        taken = usage.windows(reach, self._period_ms, WINDOWS_AT_ONCE)
        for window in taken:
            self._tell(tx, window, moment.now)
        for key, metered_to in usage.metered(taken).items():
            holds.meter_to(tx.conn, key, metered_to)
        return len(taken) == WINDOWS_AT_ONCE

    async def run(self, transaction: Transaction, lives: Callable[[AttemptKey, Phase], bool]) -> None:
        """Measure at every boundary of the grid; sleep while nothing is held."""
        while True:
            self._changed.clear()
            async with transaction() as tx:
                held, seen = holds.held(tx.conn), self.now(tx.conn)
            alive = {key for key, phase in held if lives(key, phase)}
            async with transaction() as tx:
                more = self.measure(tx, alive, seen)
                due_s = self._boottime() + self._to_boundary_s(tx.conn) if held else None
            if not more:
                await self._changed_or(due_s)

    def _begin(self, tx: Tx[sqlite3.Connection], attempt: Attempt) -> None:
        cards = self._cards_of(attempt)
        if not cards:
            return
        if not holds.held(tx.conn):
            known = holds.clock(tx.conn)
            last = None if known is None else known.ended_ms
            self._set_clock(tx.conn, usage.floor_of_idle(usage.to_ms(self._clock.now()), last))
        holds.begin(tx.conn, attempt.key, cards, self.now(tx.conn))
        self._changed.set()

    def _set_out(self, tx: Tx[sqlite3.Connection], before: Attempt, after: Attempt) -> None:
        """The attempt starts. Where its agent was away, or the lease of its claim has lapsed, it is held anew."""
        hold, moment = holds.find_open(tx.conn, after.key), self._moment(tx.conn)
        if hold is None:
            return
        anew = hold.epoch is not None and after.epoch != before.epoch
        since = moment.now if anew else moment.awake
        holds.meter_to(tx.conn, after.key, max(hold.metered_to, since))

    def _cards_of(self, attempt: Attempt) -> list[HeldCard]:
        assert attempt.run is not None, "only an offered attempt is claimed"
        member = own_member(attempt.run)
        unknown = [index for index in member.cards if index not in self._cards]
        if unknown:
            get_logger().error("usage.card_unknown", job=attempt.key.job_id, node=self._me.node, cards=unknown)
        known = [self._cards[index] for index in member.cards if index in self._cards]
        return [replace(card, share_milli=member.share_milli or usage.WHOLE_CARD_MILLI) for card in known]

    def _end(self, tx: Tx[sqlite3.Connection], attempt: Attempt) -> None:
        """End the hold and tell its last windows at once; where those are many, the loop tells the rest."""
        hold, moment = holds.find_open(tx.conn, attempt.key), self._moment(tx.conn)
        if hold is None:
            return
        assert attempt.ended is not None, "an attempt that has exited has an ending"
        ended = usage.to_ms(attempt.ended.ended_at) + moment.now - usage.to_ms(self._clock.now())
        end = usage.end_of(hold, ended, moment.awake, moment.now, unseen=attempt.ended.unseen)
        held_to = usage.bounded(hold, end, self._lapse(hold, moment))
        if attempt.ended.started_at is None:
            holds.meter_to(tx.conn, attempt.key, max(hold.metered_to, min(moment.awake, held_to)))
        holds.end(tx.conn, attempt.key, held_to)
        names = {"job": attempt.key.job_id, "attempt": attempt.key.attempt, "member": attempt.key.member}
        get_logger().info(
            "usage.held", node=self._me.node, **names, cards=len(hold.cards), lasted_ms=held_to - hold.held_from
        )
        self.measure(tx, frozenset(), moment.now)
        self._changed.set()

    def _lapse(self, hold: Hold, moment: Moment) -> int | None:
        """When the lease of a hold runs out or ran out; None where it has none, or that is not known any more."""
        end_s = None if hold.epoch is None else self._lease_end(hold.epoch)
        return None if end_s is None else int(end_s * 1000) + moment.offset

    def _tell(self, tx: Tx[sqlite3.Connection], window: Window, now: int) -> None:
        lives = sorted({piece.hold.life for piece in window.pieces if piece.hold.life is not None})
        with spans.span("measure usage", root=True, links=lives):
            spans.annotate(node=self._me.node)
            for part in usage.portions(usage.rows(window)):
                self._emit(tx, window.start, part, now)

    def _emit(self, tx: Tx[sqlite3.Connection], start: int, rows: list[UsageRow], now: int) -> None:
        body = UsageMeasured(
            node=self._me.node,
            incarnation=self._me.incarnation,
            period_s=self._period_ms // 1000,
            window_start=usage.to_time(start),
            rows=rows,
            measured_at=usage.to_time(now),
        )
        tx.emit(
            registry.USAGE_MEASURED,
            body,
            key=self._me.node,
            subject=self._me.node,
            sequence=store.count_up(tx.conn, "usage"),
            actor=f"agent/{self._me.node}",
            incarnation=self._me.incarnation,
        )

    # ---- the clock

    def _moment(self, conn: sqlite3.Connection) -> Moment:
        """Look at the clock; it is set in a new boot. While the agent was away, what waits to start is not measured."""
        known = holds.clock(conn)
        if known is None or known.boot != self._boot:
            known = self._set_clock(conn, holds.newest_metered(conn))
        boot_ms = self._look()
        moment = Moment(boot_ms + known.offset_ms, self._awake_ms + known.offset_ms, known.offset_ms)
        holds.skip_to(conn, moment.awake)
        return moment

    def _look(self) -> int:
        """The boot clock now; a look that comes late ends the time that the agent has been awake."""
        boot_ms = self._boot_ms()
        if boot_ms - self._looked_ms > STOPPED_MS:
            self._awake_ms = boot_ms
        self._looked_ms = boot_ms
        return boot_ms

    def _set_clock(self, conn: sqlite3.Connection, floor_ms: int | None) -> MeterClock:
        clock = MeterClock(self._boot, usage.offset(usage.to_ms(self._clock.now()), self._boot_ms(), floor_ms))
        holds.set_clock(conn, clock)
        return clock

    def _boot_ms(self) -> int:
        return int(self._boottime() * 1000)

    def _to_boundary_s(self, conn: sqlite3.Connection) -> float:
        return (self._period_ms - self.now(conn) % self._period_ms) / 1000 + AFTER_BOUNDARY_S

    async def _changed_or(self, due_s: float | None) -> None:
        """Wait for a change, or until `due_s` on the boot clock, with looks at it; without `due_s` there are none."""
        while not self._changed.is_set():
            self._look()
            left_s = None if due_s is None else due_s - self._boottime()
            if left_s is not None and left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left_s is None else min(left_s, LOOK_S)):
                    await self._changed.wait()
