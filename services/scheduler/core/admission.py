"""Admission: whether a submission becomes a job.

In: the body, the tenant's file and standing, the shapes of all known nodes, lost ones included, the windows and what
its image stands for. Out: a reason to refuse, or the new job with the transitions it makes at once (a cancel or a hold
may have come before it).
"""

from dataclasses import dataclass, replace
from datetime import datetime

from contracts.base import INT64_MAX, Reason, Tier
from contracts.jobs import CARD_MILLI, JobKind, JobPhase, JobSpec, Resources
from services.scheduler.core import images, quota, words
from services.scheduler.core.demands import TIERS, host_memory_bytes
from services.scheduler.core.images import Bound
from services.scheduler.core.jobs import decide
from services.scheduler.core.model import Cancel, Decision, Hold, Intent, Job, Limits, Publish, Reprioritize
from services.scheduler.core.quota import CohortHours, Standing, Tenant

LONGEST_WITHOUT_CHECKPOINT_S = 3600
MAX_SEATS_BYTES = 384 * 1024  # a reply holds 512 KiB
MAX_OFFERS_BYTES = 64 * 1024 * 1024  # one transaction writes them all
SEAT_BYTES = 128
CARD_BYTES = 4


@dataclass(frozen=True)
class CardGroup:
    """Cards of one kind on a node."""

    model: str
    memory_bytes: int
    count: int


@dataclass(frozen=True)
class NodeShape:
    """What a node has when nothing runs on it: `limit_cards` may work at once, and `link_mbps` may be used, if told."""

    tier: Tier
    cpu_milli: int
    memory_bytes: int
    cards: tuple[CardGroup, ...]
    pool: str | None = None
    limit_cards: int | None = None
    link_mbps: int | None = None

    def fitting_cards(self, asked: Resources) -> int:
        """The most cards of one model that suit the member."""
        counts: dict[str, int] = {}
        for group in self.cards:
            if suits(group, asked):
                counts[group.model] = counts.get(group.model, 0) + group.count
        return max(counts.values(), default=0)


@dataclass(frozen=True)
class Terms:
    """What a submission is held against beside its tenant: known nodes, windows, what its image stands for, its cohort.

    `reach_cards` is the most that the tenant could ever hold with all that its cohort may lend, None without a cohort.
    """

    shapes: tuple[NodeShape, ...]
    windows: frozenset[str] = frozenset()
    image: Bound | None = None
    cohort: CohortHours | None = None
    reach_cards: int | None = None


def suits(group: CardGroup, asked: Resources) -> bool:
    """Whether cards are what the member asks for; the case of a model does not matter."""
    least = max(asked.memory_per_card_bytes, asked.share_memory_bytes or 0)
    return group.memory_bytes >= least and (not asked.models or group.model.casefold() in asked.models)


def share_milli(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> int:
    """The most of a card, in thousandths, that a member may be given: a share of memory is largest on small cards."""
    asked = spec.resources
    if asked.share_memory_bytes is None:
        return asked.share_milli or CARD_MILLI
    sizes = [group.memory_bytes for shape in shapes for group in shape.cards if suits(group, asked)]
    return min(CARD_MILLI, max(1, -(-asked.share_memory_bytes * CARD_MILLI // min(sizes)))) if sizes else CARD_MILLI


def refusal(spec: JobSpec, tenant: Tenant | None, terms: Terms, standing: Standing, now: datetime) -> Reason | None:
    """The first reason to refuse the submission, or None."""
    if tenant is None:
        return words.unknown_tenant(spec.tenant)
    if tenant.suspended:
        return words.tenant_suspended(tenant.tenant)
    visible = tuple(shape for shape in terms.shapes if shape.pool is None or shape.pool in tenant.pools)
    return (
        _too_many_seats(spec)
        or _too_much_memory(spec)
        or _needs_checkpoint(spec)
        or _unknown_window(spec, terms.windows)
        or images.refusal(spec, tenant.images, terms.image)
        or _no_such_node(spec, tenant, visible, terms.shapes)
        or _beyond_reach(spec, tenant, terms.reach_cards, share_milli(spec, visible))
        or quota.refusal(tenant, spec, standing, now, share_milli(spec, visible), terms.cohort)
    )


def _beyond_reach(spec: JobSpec, tenant: Tenant, reach_cards: int | None, milli: int) -> Reason | None:
    """More cards at a time than the whole cohort of the tenant could lend it."""
    cards = -(-spec.total_cards * milli // CARD_MILLI)
    if reach_cards is None or cards <= max(reach_cards, tenant.quotas.guarantee) or cards > tenant.quotas.most_cards:
        return None
    return words.exceeds_largest_quota(tenant.tenant, cards, reach_cards)


def _unknown_window(spec: JobSpec, known: frozenset[str]) -> Reason | None:
    return None if spec.window is None or spec.window in known else words.unknown_window(spec.window, known)


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


def _no_such_node(
    spec: JobSpec, tenant: Tenant, visible: tuple[NodeShape, ...], shapes: tuple[NodeShape, ...]
) -> Reason | None:
    """With the pools that have such nodes and are not the tenant's."""
    reason = no_such_node(spec, visible)
    if reason is None:
        return None
    others = (shape for shape in shapes if shape.pool not in {None, *tenant.pools} and shape.tier in TIERS[spec.kind])
    pools = sorted({shape.pool or "" for shape in others if _lacking(spec, (shape,)) is None})
    return words.in_other_pools(reason, pools) if pools else reason


def no_such_node(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> Reason | None:
    """Why no known node could hold one member; None while none is known, or none of the tiers it may use."""
    allowed = tuple(shape for shape in shapes if shape.tier in TIERS[spec.kind])
    return _lacking(spec, allowed or shapes)


def _lacking(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> Reason | None:
    asked = spec.resources
    if not shapes:
        return None
    fitting = [shape for shape in shapes if _holds(shape, asked)]
    if fitting:
        return _beyond(spec, fitting)
    small = _small_cards(spec, shapes)
    if small is not None:
        return small
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
        f"asks {words.size(wanted)} of memory on one node, the fitting nodes have at most {words.size(most_memory)} "
        "beside its processors"
    )
    return words.no_such_node_type(spec, "memory_bytes", wanted, most_memory, what)


def _small_cards(spec: JobSpec, shapes: tuple[NodeShape, ...]) -> Reason | None:
    """Why no known card will do, where those of the models that it asks for have too little memory."""
    asked = spec.resources
    least = max(asked.memory_per_card_bytes, asked.share_memory_bytes or 0)
    there = (group for shape in shapes for group in shape.cards)
    most = max(
        (group.memory_bytes for group in there if not asked.models or group.model.casefold() in asked.models),
        default=least,
    )
    if not asked.cards or most >= least:
        return None
    what = f"asks {_cards_asked(asked)}, the largest that is known has {words.size(most)}"
    return words.no_such_node_type(spec, "card_memory_bytes", least, most, what)


def _beyond(spec: JobSpec, shapes: list[NodeShape]) -> Reason | None:
    """Why none of the nodes that have what is asked may give it: an assessed limit is in the way, not another job."""
    asked = spec.resources
    whole = asked.cards if asked.share_milli is None and asked.share_memory_bytes is None else min(1, asked.cards)
    cards = [shape for shape in shapes if shape.limit_cards is None or shape.limit_cards >= whole]
    if not cards:
        return words.beyond_limit(spec, "cards", whole, max(shape.limit_cards or 0 for shape in shapes))
    link = asked.link_mbps or 0
    if all(shape.link_mbps is not None and shape.link_mbps < link for shape in cards):
        return words.beyond_limit(spec, "link_mbps", link, max(shape.link_mbps or 0 for shape in cards))
    return None


def _holds(shape: NodeShape, asked: Resources) -> bool:
    return (
        shape.fitting_cards(asked) >= asked.cards
        and shape.cpu_milli >= asked.cpu_milli
        and shape.memory_bytes >= host_memory_bytes(asked)
    )


def _no_such_cards(asked: Resources, shapes: tuple[NodeShape, ...], most: int) -> str:
    models = sorted({group.model for shape in shapes for group in shape.cards})
    known = f"known models: {', '.join(models)}" if models else "no known node has cards"
    return f"asks {_cards_asked(asked)} on one node, the largest node where it may run has {most} ({known})"


def _cards_asked(asked: Resources) -> str:
    """`2 A100 or H100 cards with 40 GiB each`."""
    stated = asked.accelerators or ([asked.accelerator] if asked.accelerator else [])
    noun = "card" if asked.cards == 1 else "cards"
    kind = f"{' or '.join(stated)} {noun}" if stated else noun if asked.cards == 1 else f"{noun} of one model"
    least = max(asked.memory_per_card_bytes, asked.share_memory_bytes or 0)
    return f"{asked.cards} {kind} with {words.size(least)} each" if least else f"{asked.cards} {kind}"


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
