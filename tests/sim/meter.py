"""The agent's meter: holds cut into windows by the agent's core, told once each."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from contracts.jobs import OnPartition
from contracts.usage import UsageItem, UsageMeasured, UsageRow
from services.agent.core import usage
from services.agent.core.model import Attempt, AttemptKey, Phase, own_member
from services.agent.core.usage import HeldCard, Hold
from tests.sim.machine import Machine

EVERY_WINDOW = 100_000
HOUR_S = 3600


class Meter:
    """Holds of one node, kept in its journal. `say` sends one message; `told_ms` sums up what was told of attempts."""

    def __init__(
        self,
        machine: Machine,
        cards: Mapping[int, HeldCard],
        period_s: int,
        rows: Mapping[AttemptKey, Attempt],
        told_ms: dict[tuple[str, int], int],
        say: Callable[[UsageMeasured], None],
    ) -> None:
        self.holds: dict[AttemptKey, Hold] = {}
        self._told_ms = told_ms
        self.awake_ms = 0
        self._machine = machine
        self._cards = cards
        self._period_ms = period_s * 1000
        self._rows = rows
        self._say = say
        self._boot = 0
        self._offset = 0
        self._ended: int | None = None

    def follow(self, before: Attempt | None, after: Attempt) -> None:
        """The row of an attempt changes: its hold begins with the granted claim and ends with the exit."""
        if before is None or before.phase is after.phase:
            return
        if after.phase is Phase.CLAIMED:
            self._begin(after)
        elif after.phase is Phase.SPAWNING:
            self._set_out(before, after)
        elif after.phase is Phase.EXITED:
            self._end(after)

    def measure(self, alive: frozenset[AttemptKey]) -> None:
        """Tell what is due of holds that have ended, and of those alive up to the last full window."""
        now, _ = self._moment()
        reach = {
            hold: usage.measurable(hold, now, self._period_ms, self._lapse(hold), alive=hold.key in alive)
            for hold in self.holds.values()
        }
        taken = usage.windows(reach, self._period_ms, EVERY_WINDOW)
        for window in taken:
            rows = list(usage.rows(window))
            if self._period_ms == HOUR_S * 1000:
                rows = [row for row in rows if row.item is UsageItem.GPU_MS]
            self._tell(window.start, rows, now)
        for key, metered_to in usage.metered(taken).items():
            self.holds[key] = replace(self.holds[key], metered_to=metered_to)
        for key, hold in list(self.holds.items()):
            if hold.held_to is not None and hold.metered_to >= hold.held_to:
                del self.holds[key]

    def _tell(self, start: int, rows: list[UsageRow], now: int) -> None:
        for row in rows:
            if row.item is UsageItem.GPU_MS:
                whose = (row.job_id, row.attempt)
                self._told_ms[whose] = self._told_ms.get(whose, 0) + row.quantity
        body = UsageMeasured(
            node=self._machine.name,
            incarnation="00000000-0000-7000-8000-000000000000",
            period_s=self._period_ms // 1000,
            window_start=usage.to_time(start),
            rows=rows,
            measured_at=usage.to_time(now),
        )
        self._say(body)

    def _begin(self, attempt: Attempt) -> None:
        assert attempt.run is not None
        member = own_member(attempt.run)
        if not member.cards:
            return
        if all(hold.held_to is not None for hold in self.holds.values()):
            wall = usage.to_ms(self._machine.wall)
            self._set_clock(usage.floor_of_idle(wall, self._ended))
        share_milli = member.share_milli or usage.WHOLE_CARD_MILLI
        cards = tuple(replace(self._cards[index], share_milli=share_milli) for index in member.cards)
        now, _ = self._moment()
        self.holds[attempt.key] = Hold(attempt.key, attempt.tenant, cards, now, now, epoch=_epoch(attempt))

    def _set_out(self, before: Attempt, after: Attempt) -> None:
        hold = self.holds.get(after.key)
        if hold is None:
            return
        now, awake = self._moment()
        hold = self.holds[after.key]
        anew = hold.epoch is not None and after.epoch != before.epoch
        since = now if anew else awake
        self.holds[after.key] = replace(hold, metered_to=max(hold.metered_to, since), epoch=_epoch(after))

    def _end(self, attempt: Attempt) -> None:
        if attempt.key not in self.holds:
            return
        now, awake = self._moment()
        hold = self.holds[attempt.key]
        assert attempt.ended is not None
        ended = usage.to_ms(attempt.ended.ended_at) + now - usage.to_ms(self._machine.wall)
        end = usage.end_of(hold, ended, awake, now, unseen=attempt.ended.unseen)
        held_to = usage.bounded(hold, end, self._lapse(hold))
        metered_to = hold.metered_to
        if attempt.ended.started_at is None:
            metered_to = max(metered_to, min(awake, held_to))
        self.holds[attempt.key] = replace(hold, held_to=held_to, metered_to=metered_to)
        self._ended = held_to if self._ended is None else max(self._ended, held_to)
        self.measure(frozenset())

    def _lapse(self, hold: Hold) -> int | None:
        end_ms = None if hold.epoch is None else self._machine.lease_end(hold.epoch)
        return None if end_ms is None else end_ms + self._offset

    def _moment(self) -> tuple[int, int]:
        """Now, and since when the agent is awake; what waits to start is not measured while it was not."""
        if self._boot != self._machine.boot:
            open_to = [hold.metered_to for hold in self.holds.values() if hold.held_to is None]
            self._set_clock(max(open_to, default=None))
        now, awake = self._machine.loop.now_ms + self._offset, self.awake_ms + self._offset
        for key, hold in self.holds.items():
            waits = self._rows[key].phase in {Phase.CLAIMED, Phase.PREPARED}
            if hold.held_to is None and waits and hold.metered_to < awake:
                self.holds[key] = replace(hold, metered_to=awake)
        return now, awake

    def _set_clock(self, floor: int | None) -> None:
        self._boot, self._ended = self._machine.boot, None
        self._offset = usage.offset(usage.to_ms(self._machine.wall), self._machine.loop.now_ms, floor)


def _epoch(attempt: Attempt) -> int | None:
    assert attempt.run is not None
    return None if attempt.run.spec.on_partition is OnPartition.KEEP else attempt.epoch
