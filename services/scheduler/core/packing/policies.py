"""The policies by name."""

from services.scheduler.core.packing.farside import Farside
from services.scheduler.core.packing.fgd import Fgd
from services.scheduler.core.packing.placer import BestFit, Placer, Random

PLACERS: dict[str, Placer] = {placer.name: placer for placer in (Farside(), Fgd(), BestFit(), Random())}
DEFAULT = Farside.name
