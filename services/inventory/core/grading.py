"""What a node is worth: a score of generation, memory, interconnect and usable cards, a grade, a class, with reasons.

The interconnect weighs more than the card's model: cards of one generation behind a thin link train far below what they
are sold as, and a node that others lack the bandwidth of is not given away for its age.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from contracts.nodes import Link, NodeClass, NodeFacts

MIB = 1024 * 1024
MAKERS = ("nvidia", "geforce", "tesla", "quadro")
SCORE = 1000

Factor = Annotated[float, Field(ge=0, le=1)]
Steps = tuple[tuple[int, Factor], ...]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Weights(_Part):
    """The exponents of the factors."""

    interconnect: Factor
    generation: Factor
    memory: Factor
    cards: Factor


class StepTables(_Part):
    """For each figure, the factor from a value on, highest value first."""

    node_link_mbps: Steps
    card_link_mbps: Steps
    card_memory_mib: Steps
    usable_cards: Steps


class Unknown(_Part):
    """The factors of what nobody has told."""

    generation: Factor
    node_link: Factor
    card_link: Factor


class Scarce(_Part):
    """From where on both links make a node scarce."""

    node_link_mbps: int
    card_link_mbps: int


class GradingRules(_Part):
    """The whole of `grading.yaml`."""

    weights: Weights
    steps: StepTables
    generations: dict[str, Factor]
    models: dict[str, str]
    unknown: Unknown
    grades: Annotated[tuple[tuple[str, int], ...], Field(min_length=1)]
    scarce: Scarce
    replaceable_generation: Factor

    @model_validator(mode="after")
    def _interconnect_first(self) -> Self:
        if self.weights.interconnect <= self.weights.generation:
            msg = (
                f"weights.interconnect is {self.weights.interconnect}: it must be above weights.generation "
                f"({self.weights.generation}), since bandwidth weighs more than the card's model"
            )
            raise ValueError(msg)
        if self.grades[-1][1] != 0:
            msg = f"grades ends with {self.grades[-1]}: the last must be from 0 on, so that every node has one"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _tables_lead_somewhere(self) -> Self:
        for model, generation in self.models.items():
            if generation not in self.generations:
                msg = f"models.{model} is {generation!r}: it must be one of generations, {', '.join(self.generations)}"
                raise ValueError(msg)
        tables = {f"steps.{name}": [least for least, _ in steps] for name, steps in self.steps}
        for name, steps in {**tables, "grades": [least for _, least in self.grades]}.items():
            if steps != sorted(steps, reverse=True):
                msg = f"{name} begins with {steps}: the first that is reached counts, so write the highest first"
                raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True)
class Graded:
    """A node's worth by its hardware: `score` in thousandths; `scarce` whatever runs there."""

    grade: str
    score: int
    node_class: NodeClass
    scarce: bool
    reasons: tuple[str, ...]


def usable_mbps(link: Link | None) -> int | None:
    """What a link carries: what was measured of it, else what it is sold as, and never more than its ceiling."""
    if link is None:
        return None
    carried = link.nominal_mbps if link.effective_mbps is None else link.effective_mbps
    known = [value for value in (carried, link.ceiling_mbps) if value is not None]
    return min(known, default=None)


def generation_of(facts: NodeFacts, rules: GradingRules) -> str | None:
    """The generation told, else that of the oldest of its cards' models, as far as they are known."""
    if facts.generation is not None:
        return facts.generation.casefold()
    found = {_by_model(card.model, rules) for card in facts.cards} - {None}
    return min((name for name in found if name is not None), key=lambda name: rules.generations[name], default=None)


def _by_model(model: str, rules: GradingRules) -> str | None:
    words = [word for word in model.casefold().replace("-", " ").split() if word not in MAKERS]
    bare = " ".join(words)
    begins = max((prefix for prefix in rules.models if bare.startswith(prefix)), key=len, default=None)
    return None if begins is None else rules.models[begins]


def grade(facts: NodeFacts, bad_cards: Sequence[int], *, critical: bool, rules: GradingRules) -> Graded:
    """Grade and class of a node; `critical`: work runs or is promised there that may not be stopped."""
    generation, generation_factor = _generation(facts, rules)
    node_mbps = usable_mbps(facts.node_link)
    card_mbps = usable_mbps(facts.card_link)
    interconnect, links = _interconnect(node_mbps, card_mbps, facts, rules)
    usable = len([card for card in facts.cards if card.index not in set(bad_cards)])
    smallest = min((card.memory_bytes for card in facts.cards), default=0) // MIB
    memory = _step(rules.steps.card_memory_mib, smallest)
    cards = _step(rules.steps.usable_cards, usable)
    weights = rules.weights
    score = round(
        SCORE
        * interconnect**weights.interconnect
        * generation_factor**weights.generation
        * memory**weights.memory
        * cards**weights.cards
    )
    letter = next(name for name, least in rules.grades if score >= least)
    scarce = usable > 0 and _scarce(node_mbps, card_mbps, rules)
    older = generation is not None and generation_factor <= rules.replaceable_generation
    kind, why = _class(scarce=scarce, critical=critical, older=older)
    reasons = (
        why,
        f"interconnect {interconnect:.2f} (weight {weights.interconnect:g}): {links}",
        f"generation {generation_factor:.2f} (weight {weights.generation:g}): {generation or 'not known'}",
        f"memory {memory:.2f} (weight {weights.memory:g}): {smallest} MiB a card",
        f"usable cards {cards:.2f} (weight {weights.cards:g}): {usable} of {len(facts.cards)}",
    )
    return Graded(letter, score, kind, scarce, reasons)


def _generation(facts: NodeFacts, rules: GradingRules) -> tuple[str | None, float]:
    name = generation_of(facts, rules)
    return name, rules.unknown.generation if name is None else rules.generations.get(name, rules.unknown.generation)


def _interconnect(
    node_mbps: int | None, card_mbps: int | None, facts: NodeFacts, rules: GradingRules
) -> tuple[float, str]:
    """The mean (geometric) of the links between nodes and between cards; a lone card has no link to need."""
    node = rules.unknown.node_link if node_mbps is None else _step(rules.steps.node_link_mbps, node_mbps)
    words = f"{_mbps(node_mbps)} between nodes"
    if len(facts.cards) == 1 and card_mbps is None:
        return node, f"{words}, one card"
    card = rules.unknown.card_link if card_mbps is None else _step(rules.steps.card_link_mbps, card_mbps)
    return (node * card) ** 0.5, f"{words}, {_mbps(card_mbps)} between cards"


def _mbps(value: int | None) -> str:
    return "not known" if value is None else f"{value} Mbit/s"


def _scarce(node_mbps: int | None, card_mbps: int | None, rules: GradingRules) -> bool:
    least = rules.scarce
    return (node_mbps or 0) >= least.node_link_mbps and (card_mbps or 0) >= least.card_link_mbps


def _class(*, scarce: bool, critical: bool, older: bool) -> tuple[NodeClass, str]:
    if critical:
        return NodeClass.CRITICAL_IN_USE, "runs work that may not be stopped"
    if scarce:
        return NodeClass.SCARCE, "both links are of the fast ones, which are few"
    if older:
        return NodeClass.REPLACEABLE, "older, newer ones do its work"
    return NodeClass.TRAINING, "to train on"


def _step(steps: Steps, value: int) -> float:
    return next((factor for least, factor in steps if value >= least), 0.0)
