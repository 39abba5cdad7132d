"""The scheduler's view of what is free: places are found, taken, given back, and named."""

from collections.abc import Sequence

import numpy as np

from services.scheduler.core.arrays import TIERS, Bools, Demand
from services.scheduler.core.model import Seat
from services.scheduler.core.packing.gangs import search
from services.scheduler.core.packing.held import Found, Spot
from services.scheduler.core.packing.ledger import Ledger


class Room(Ledger):
    """A copy of what `fleet` has free. `memo` may be shared by rooms that are used one after the other."""

    def find(self, demand: Demand, allowed: Bools | None = None, avoid: Sequence[int] = ()) -> Found | None:
        """Places for all members, or none; nothing is taken.

        `allowed` is a mask over the nodes; nodes in `avoid` are chosen only when no others fit.
        """
        usable = self._usable(allowed)
        if len(avoid):
            preferred = np.ones(self.layout.rows, dtype=np.bool_) if usable is None else usable.copy()
            preferred[np.isin(self.layout.node, np.array(avoid, dtype=np.int64))] = False
            found = search(self, demand, preferred)
            if found is not None:
                return found
        return search(self, demand, usable)

    def seats(self, found: Found) -> tuple[Seat, ...]:
        """One a member, in the order of their indexes."""
        return tuple(self._seat(spot) for spot in found.spots)

    def _usable(self, allowed: Bools | None) -> Bools | None:
        return None if allowed is None else allowed[self.layout.node]

    def _seat(self, spot: Spot) -> Seat:
        fleet = self.fleet
        where = fleet.nodes[spot.node], TIERS[int(fleet.tier[spot.node])]
        if not spot.cards:
            return Seat(*where, ())
        cards = np.array(spot.cards, dtype=np.int64)
        model, memory = fleet.models[int(fleet.card_model[cards[0]])], int(fleet.card_memory_bytes[cards].max())
        return Seat(*where, tuple(sorted(fleet.card_index[cards].tolist())), model, memory, spot.share)
