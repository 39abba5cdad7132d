"""The policies by name."""

from services.scheduler.core.packing.placer import BestFit, Placer

PLACERS: dict[str, Placer] = {placer.name: placer for placer in (BestFit(),)}
DEFAULT = "bestfit"
