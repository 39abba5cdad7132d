"""Every knob of the plan, each with a default that works; what a setting turns off is said in words."""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import log

from services.scheduler.core.packing import DEFAULT as PLACER

HOUR_S = 3600
DAY_S = 24 * HOUR_S
MAX_STAGES = 64


class Order(StrEnum):
    """Whose turn comes first: `FAIR` is Farside's own; the others are what it is compared with."""

    FAIR = "fair"
    FIFO = "fifo"
    PRIORITY = "priority"
    SHORTEST = "shortest"


class OverLimit(StrEnum):
    """What becomes of work that a lowered limit, or a pool divided anew, no longer covers."""

    PREEMPT = "preempt"
    DRAIN = "drain"


@dataclass(frozen=True)
class Policy:
    """How turns, reservations, preemption and consolidation are decided.

    - `placer` names the packing policy that decides where (see `packing`).
    - `order`: under `FAIR` tenants inside their guarantee come first, then the class, then the least fair share. `FIFO`
      and `SHORTEST` look at nothing but the time of submission and the longest run; `PRIORITY` at class and time.
    - `strict`: a job that does not fit blocks all that come behind it for the same kind of cards; no backfill.
    - `half_life_s`: after so long, use counts half. 0 turns the memory off: shares then count only what is held now.
    - `held_s`: one held card counts as much as one card used for so long; None: what holding it for good would add up
      to under `half_life_s`, or a day without one.
    - `reservations`: how many blocked jobs of one kind of cards have room kept for them, `max_reservations` in all.
    - `repair_s`: for so long after a fault of the fleet what is left, and what comes back, is kept for the gang that
      lost its place; 0 keeps nothing.
    - `preempt` turns preemption off; `max_preemptors` jobs of one plan may have victims, `max_victims` each.
    - `grace_s`: how long a victim may take to leave, for the expected start of whom it leaves.
    - `consolidate` turns moving off; at most `max_moves` attempts move for one gang, if what they lose, with
      `restart_s` each, is less than what the gang would lose by waiting.
    - `hold_share` and `hold_s`: an attempt that has held more than this share of its kind of cards for so long has had
      its turn and may be stopped for others of its class, and what is borrowed for so long for those of tenants that
      have had less. `hold_share` 1 turns both off.
    - `stages_card_h`: within its class a job goes back by one stage for each of these card-hours that it has had, and
      preemptible work of a later stage that has held its cards for `turn_s` makes room for an earlier one. Empty turns
      stages off. At most `MAX_STAGES` - 1 of them.
    - `patience_s`: for who has waited for so long nodes are cleared if no longest runs tell when it will fit, and whose
      tenant has had less than its guarantee has the first word (see `patience`). 0 turns it off.
    - `over_limit`: `PREEMPT` stops preemptible work above a lowered limit or outside a tenant's pools, and lets the
      rest end; `DRAIN` lets all of it end.
    """

    placer: str = PLACER
    order: Order = Order.FAIR
    strict: bool = False
    half_life_s: int = 7 * DAY_S
    held_s: int | None = None
    reservations: int = 2
    max_reservations: int = 16
    repair_s: int = 1800
    preempt: bool = True
    max_preemptors: int = 16
    max_victims: int = 64
    grace_s: int = 120
    consolidate: bool = True
    max_moves: int = 4
    restart_s: int = 300
    hold_share: float = 0.5
    hold_s: int = DAY_S
    stages_card_h: tuple[float, ...] = (30,)
    turn_s: int = HOUR_S
    patience_s: int = 7 * DAY_S
    over_limit: OverLimit = OverLimit.PREEMPT

    @property
    def held_ms(self) -> float:
        """Card-milliseconds that one held card counts for in a tenant's share."""
        if self.held_s is not None:
            return self.held_s * 1000.0
        return (self.half_life_s / log(2) if self.half_life_s > 0 else DAY_S) * 1000.0

    def turned_off(self) -> tuple[str, ...]:
        """What the settings turn off, one sentence each; for the log, so that nothing is off unseen."""
        told = (
            (self.order is not Order.FAIR, f"order is {self.order}: guarantees and fair share decide no turn"),
            (self.half_life_s <= 0, "half_life_s is 0: past use counts nothing, shares follow what is held now"),
            (self.strict, "strict is on: what does not fit blocks what comes behind it"),
            (self.reservations <= 0 or self.max_reservations <= 0, "reservations are off: large gangs may starve"),
            (not self.preempt or self.max_preemptors <= 0, "preemption is off: a guarantee waits for borrowers to end"),
            (not self.consolidate or self.max_moves <= 0, "consolidation is off: fragmented gangs wait"),
            (self.hold_share >= 1, "hold_share is 1: one job may hold all cards of a kind for as long as it runs"),
            (self.patience_s <= 0, "patience_s is 0: wide jobs may wait for ever behind small ones of unknown length"),
            (not self.stages_card_h, "stages_card_h is empty: short jobs wait behind long ones of their class"),
        )
        return tuple(text for off, text in told if off)


def decayed(usage: float, elapsed_s: float, half_life_s: int) -> float:
    """What `usage` counts after `elapsed_s`; a clock that went back takes nothing away, no half-life forgets all."""
    if half_life_s <= 0:
        return 0.0
    return float(usage * 0.5 ** (max(0.0, elapsed_s) / half_life_s))


DEFAULT = Policy()
FIFO = replace(DEFAULT, order=Order.FIFO, strict=True, preempt=False, consolidate=False)
PRIORITY = replace(DEFAULT, order=Order.PRIORITY, strict=True, consolidate=False)
SHORTEST = replace(DEFAULT, order=Order.SHORTEST, strict=True, preempt=False, consolidate=False)
VARIANTS = {"farside": DEFAULT, "fifo": FIFO, "priority": PRIORITY, "shortest": SHORTEST}
