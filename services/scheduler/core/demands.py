"""What a job asks of the fleet, as the plan sees it."""

from contracts.base import Tier
from contracts.jobs import JobKind, JobSpec, Resources
from services.scheduler.core.arrays import CARD, NEVER, Demand, Level
from services.scheduler.core.model import SHARE_PER_MILLI

US_PER_S = 1_000_000

# Where each kind may run, best first (FEATURES row S2).
TIERS: dict[JobKind, tuple[Tier, ...]] = {
    JobKind.TRAINING: (Tier.CENTRAL,),
    JobKind.FINE_TUNING: (Tier.CENTRAL,),
    JobKind.INFERENCE: (Tier.REMOTE, Tier.SHARED, Tier.CENTRAL),
    JobKind.PREPROCESSING: (Tier.REMOTE, Tier.SHARED),
    JobKind.BATCH: (Tier.REMOTE, Tier.SHARED),
}


def host_memory_bytes(asked: Resources) -> int:
    """Memory that a member takes on its node, huge pages included."""
    return asked.memory_bytes + asked.huge_pages_bytes


def demand_of(spec: JobSpec) -> Demand:
    """The shape of a job. Scarce nodes are meant for gangs with cards, and for whoever states how near they must be."""
    asked, topology = spec.resources, spec.topology
    level = None if topology is None or topology.level is None else Level(topology.level.value)
    return Demand(
        tiers=TIERS[spec.kind],
        members=spec.members,
        cards=asked.cards,
        share=CARD if asked.share_milli is None else asked.share_milli * SHARE_PER_MILLI,
        share_memory_bytes=asked.share_memory_bytes or 0,
        models=asked.models,
        card_memory_bytes=asked.memory_per_card_bytes,
        cpu_milli=asked.cpu_milli,
        memory_bytes=host_memory_bytes(asked),
        link_mbps=asked.link_mbps or 0,
        level=level,
        level_required=level is not None and topology is not None and topology.required,
        needs_bandwidth=asked.cards > 0 and (spec.members > 1 or level is not None),
    )


def longest_us(spec: JobSpec) -> int:
    """The longest run in microseconds, `NEVER` when unbounded."""
    return NEVER if spec.max_runtime_s is None else spec.max_runtime_s * US_PER_S
