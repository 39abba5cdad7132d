"""Where jobs go: what is free, which places fit, and which of them is best for what is likely to come."""

from services.scheduler.core.packing.cutting import warm_up
from services.scheduler.core.packing.held import Found, Held, Spot
from services.scheduler.core.packing.ledger import Mark
from services.scheduler.core.packing.memo import Memo
from services.scheduler.core.packing.mix import Mix
from services.scheduler.core.packing.placer import Placer
from services.scheduler.core.packing.policies import DEFAULT, PLACERS
from services.scheduler.core.packing.room import Room
from services.scheduler.core.packing.supply import Supply

__all__ = ["DEFAULT", "PLACERS", "Found", "Held", "Mark", "Memo", "Mix", "Placer", "Room", "Spot", "Supply", "warm_up"]
