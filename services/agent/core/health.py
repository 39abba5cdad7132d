"""What looks at a card say together, and whether a report of them is due.

In: looks, one after another, and the time. Out: the card's health with what takes time to know: mean utilisation since
the last report, link errors a second, minutes with a slowdown by the hardware. Time is seconds of a clock that counts
while the machine sleeps.
"""

from collections import deque
from dataclasses import dataclass, field

from contracts.health import CardHealth, CheckResult, NodeReported

MINUTE_S = 60.0
MINUTES = 10


@dataclass
class CardHistory:
    """What is remembered of one card."""

    utilisation: list[int] = field(default_factory=list[int])
    slowed: deque[int] = field(default_factory=lambda: deque[int](maxlen=MINUTES))
    watched_slowdowns: bool = False
    errors: int | None = None
    looked_s: float | None = None

    def add(self, card: CardHealth, errors: int | None, *, slowed: bool | None, at_s: float) -> CardHealth:
        """Take a look in; the card's health by now."""
        if card.utilisation_pct is not None:
            self.utilisation.append(card.utilisation_pct)
        self.watched_slowdowns |= slowed is not None
        minute = int(at_s // MINUTE_S)
        if slowed and (not self.slowed or self.slowed[-1] != minute):
            self.slowed.append(minute)
        rate = self._rate(errors, at_s)
        self.errors, self.looked_s = errors, at_s
        used = self.utilisation
        return card.model_copy(
            update={
                "utilisation_pct": round(sum(used) / len(used)) if used else None,
                "link_crc_errors_per_s": rate,
                "hardware_slowdowns": self._slowdowns(minute) if self.watched_slowdowns else None,
            }
        )

    def reported(self) -> None:
        """The means begin anew."""
        self.utilisation.clear()

    def _rate(self, errors: int | None, at_s: float) -> int | None:
        """None at the first look, and when the counter was set back."""
        if errors is None or self.errors is None or self.looked_s is None or errors < self.errors:
            return None
        return int((errors - self.errors) / max(at_s - self.looked_s, 1.0))

    def _slowdowns(self, minute: int) -> int:
        return sum(minute - MINUTES < one <= minute for one in self.slowed)


def due(report: NodeReported, last: NodeReported | None, since_s: float, every_s: float) -> bool:
    """Whether to tell: what may change a judgement has changed, or it is time."""
    return last is None or since_s >= every_s or _weighty(report) != _weighty(last)


def _weighty(report: NodeReported) -> tuple[object, ...]:
    cards = tuple(_of_card(card) for card in report.cards)
    synchronised = None if report.clock is None else report.clock.synchronised
    return cards, tuple(_of_check(check) for check in report.checks), synchronised, report.boot_id


def _of_check(check: CheckResult) -> tuple[object, ...]:
    return check.name, check.verdict


def _of_card(card: CardHealth) -> tuple[object, ...]:
    uncorrected = None if card.ecc is None else (card.ecc.volatile_uncorrected, card.ecc.aggregate_uncorrected)
    counted = tuple((xid.code, xid.count) for xid in card.xids)
    state = (card.uuid, card.lost, card.fault, card.mig, card.recovery, card.hardware_slowdowns)
    return *state, counted, uncorrected, card.retired_pages, card.remapped_rows
