"""What a node has left for members of attempts while placements are committed to it, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from contracts.jobs import Resources
from services.scheduler.core.demands import host_memory_bytes
from services.scheduler.core.model import Seat


@dataclass(frozen=True)
class Headroom:
    """Below zero is what was given too often.

    `budget` is what the assessed limit of the node leaves of its cards, and `cards` what is left of those that are
    asked for, in millionths; `NEVER` where there is no limit, or none of the link.
    """

    slots: int
    cpu_milli: int
    memory_bytes: int
    link_mbps: int
    budget: int
    cards: dict[int, int]

    def less(self, seats: Iterable[Seat], asked: Resources) -> "Headroom":
        """What is left once those of these seats are taken; each asks this."""
        cards, members, shares = dict(self.cards), 0, 0
        for seat in seats:
            members += 1
            for card in seat.cards:
                cards[card] -= seat.share
                shares += seat.share
        return replace(
            self,
            slots=self.slots - members,
            cpu_milli=self.cpu_milli - members * asked.cpu_milli,
            memory_bytes=self.memory_bytes - members * host_memory_bytes(asked),
            link_mbps=self.link_mbps - members * (asked.link_mbps or 0),
            budget=self.budget - shares,
            cards=cards,
        )

    def short(self, asked: Resources) -> str | None:
        """What there is too little of for somebody who asks this; None: nothing. Others' shortage is not looked at."""
        found = {
            "slots": self.slots < 0,
            "processors": asked.cpu_milli > 0 and self.cpu_milli < 0,
            "memory": host_memory_bytes(asked) > 0 and self.memory_bytes < 0,
            "link": bool(asked.link_mbps) and self.link_mbps < 0,
            "room on a card": asked.cards > 0 and min(self.cards.values(), default=0) < 0,
            "room below its assessed limit": asked.cards > 0 and self.budget < 0,
        }
        return next((what for what, lacks in found.items() if lacks), None)
