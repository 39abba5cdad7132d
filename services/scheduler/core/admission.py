"""Admission: whether a submission becomes a job.

In: the body, the tenant's file and standing, and the shapes of all known nodes, lost ones
included. Out: a reason to refuse, or the new job with the transitions it makes at once (a cancel or a hold may have
come before it).
"""

from dataclasses import dataclass, replace
from datetime import datetime

from contracts.base import INT64_MAX, Reason, Tier
from contracts.jobs import JobKind, JobPhase, JobSpec, Resources
from services.scheduler.core import quota, words
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Cancel, Decision, Hold, Intent, Job, Limits, Publish, Reprioritize
from services.scheduler.core.quota import Standing, Tenant

LONGEST_WITHOUT_CHECKPOINT_S = 3600
MAX_SEATS_BYTES = 384 * 1024  # a reply holds 512 KiB
MAX_OFFERS_BYTES = 64 * 1024 * 1024  # one transaction writes them all
SEAT_BYTES = 128
CARD_BYTES = 4

# Where each kind may run, best first (FEATURES row S2).
TIERS: dict[JobKind, tuple[Tier, ...]] = {
    JobKind.TRAINING: (Tier.CENTRAL,),
    JobKind.FINE_TUNING: (Tier.CENTRAL,),
    JobKind.INFERENCE: (Tier.REMOTE, Tier.SHARED, Tier.CENTRAL),
    JobKind.PREPROCESSING: (Tier.REMOTE, Tier.SHARED),
    JobKind.BATCH: (Tier.REMOTE, Tier.SHARED),
}


@dataclass(frozen=True)
class CardGroup:
    """Cards of one kind on a node."""

    model: str
    memory_bytes: int
    count: int


@dataclass(frozen=True)
class NodeShape:
    """What a node has when nothing runs on it."""

    tier: Tier
    cpu_milli: int
    memory_bytes: int
    cards: tuple[CardGroup, ...]

    def fitting_cards(self, asked: Resources) -> int:
        """The most cards of one model that suit the member."""
        counts: dict[str, int] = {}
        for group in self.cards:
            if suits(group.model, asked.accelerator) and group.memory_bytes >= asked.memory_per_card_bytes:
                counts[group.model] = counts.get(group.model, 0) + group.count
        return max(counts.values(), default=0)


def suits(model: str, accelerator: str | None) -> bool:
    """Whether a card's model is the one asked for; case does not matter."""
    return accelerator is None or model.casefold() == accelerator.casefold()


def host_memory_bytes(asked: Resources) -> int:
    """Memory that a member takes on its node, huge pages included."""
    return asked.memory_bytes + asked.huge_pages_bytes


def refusal(
    spec: JobSpec,
    tenant: Tenant | None,
    shapes: tuple[NodeShape, ...],
    standing: Standing,
    now: datetime,
) -> Reason | None:
    """The first reason to refuse the submission, or None."""
    if tenant is None:
        return words.unknown_tenant(spec.tenant)
    return (
        _too_many_seats(spec)
        or _too_much_memory(spec)
        or _needs_checkpoint(spec)
        or no_such_node(spec, shapes)
        or quota.refusal(tenant, spec, standing, now)
    )


def _too_many_seats(spec: JobSpec) -> Reason | None:
    """A job's events name each member with its cards, and must fit the bus; so does the offer to each member."""
    size = spec.members * (SEAT_BYTES + CARD_BYTES * spec.resources.cards)
    if size > MAX_SEATS_BYTES:
        return words.too_many_seats(spec, size, MAX_SEATS_BYTES)
    if spec.members * size > MAX_OFFERS_BYTES:
        return words.too_many_offers(spec, spec.members * size, MAX_OFFERS_BYTES)
    return None


def _too_much_memory(spec: JobSpec) -> Reason | None:
    """Memory and huge pages together must be a quantity that a node could state, whether any node is known or not."""
    wanted = host_memory_bytes(spec.resources)
    return words.too_much_memory(spec, wanted, INT64_MAX) if wanted > INT64_MAX else None


def _needs_checkpoint(spec: JobSpec) -> Reason | None:
    trains = spec.kind in {JobKind.TRAINING, JobKind.FINE_TUNING}
    if trains and spec.checkpoint is None and (spec.max_runtime_s or 0) > LONGEST_WITHOUT_CHECKPOINT_S:
        return words.checkpoint_required(spec, LONGEST_WITHOUT_CHECKPOINT_S)
    return None


def no_such_node(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> Reason | None:
    """Why no known node could hold one member; None while none is known, or none of the tiers it may use."""
    allowed = tuple(shape for shape in shapes if shape.tier in TIERS[spec.kind])
    return _lacking(spec, allowed or shapes)


def _lacking(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> Reason | None:
    asked = spec.resources
    if not shapes or any(_holds(shape, asked) for shape in shapes):
        return None
    most_cards = max(shape.fitting_cards(asked) for shape in shapes)
    if most_cards < asked.cards:
        return words.no_such_node_type(
            spec, "cards", asked.cards, most_cards, _no_such_cards(asked, shapes, most_cards)
        )
    enough = [shape for shape in shapes if shape.fitting_cards(asked) >= asked.cards]
    most_cpu = max(shape.cpu_milli for shape in enough)
    if most_cpu < asked.cpu_milli:
        what = f"asks {asked.cpu_milli} cpu_milli on one node, the largest fitting node has {most_cpu}"
        return words.no_such_node_type(spec, "cpu_milli", asked.cpu_milli, most_cpu, what)
    wanted = host_memory_bytes(asked)
    most_memory = max(shape.memory_bytes for shape in enough)
    what = (
        f"asks {wanted} bytes of memory on one node, the fitting nodes have at most {most_memory} beside its processors"
    )
    return words.no_such_node_type(spec, "memory_bytes", wanted, most_memory, what)


def _holds(shape: NodeShape, asked: Resources) -> bool:
    return (
        shape.fitting_cards(asked) >= asked.cards
        and shape.cpu_milli >= asked.cpu_milli
        and shape.memory_bytes >= host_memory_bytes(asked)
    )


def _no_such_cards(asked: Resources, shapes: tuple[NodeShape, ...], most: int) -> str:
    kind = f"{asked.accelerator} cards" if asked.accelerator else "cards of one model"
    if asked.memory_per_card_bytes:
        kind += f" with {asked.memory_per_card_bytes} bytes each"
    models = sorted({group.model for shape in shapes for group in shape.cards})
    known = f"known models: {', '.join(models)}" if models else "no known node has cards"
    return f"asks {asked.cards} {kind} on one node, the largest node where it may run has {most} ({known})"


def admit(spec: JobSpec, intent: Intent, now: datetime, limits: Limits) -> Decision:
    """The new job, accepted, and cancelled or held at once when that was asked before it came."""
    job = Job(spec=spec, version=1, phase=JobPhase.ACCEPTED, submitted_at=now, updated_at=now)
    decision = Decision(job, (Publish(job),))
    if intent.hold_changed_at is not None and intent.held:
        decision = _after(decision, decide(job, Hold(intent.hold_changed_at, intent.hold_reason), now, limits))
    elif intent.hold_changed_at is not None:
        decision = replace(decision, job=replace(job, hold_changed_at=intent.hold_changed_at))
    if intent.priority is not None and intent.priority_changed_at is not None:
        asked = Reprioritize(intent.priority_changed_at, intent.priority)
        decision = _after(decision, decide(decision.job, asked, now, limits))
    if intent.cancel_reason is not None:
        decision = _after(decision, decide(decision.job, Cancel(intent.cancel_reason), now, limits))
    return decision


def _after(first: Decision, second: Decision) -> Decision:
    return Decision(second.job, first.effects + second.effects)
