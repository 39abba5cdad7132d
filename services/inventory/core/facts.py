"""What is declared of a node beside what its agent announces: what fills in, and what differs."""

from collections import Counter
from collections.abc import Iterator

from contracts.fleet import DeclaredLink, DeclaredNode
from contracts.nodes import Link, NodeFacts

FILLED = (
    "rack",
    "generation",
    "card_link",
    "node_link",
    "link_mbps",
    "cost",
    "power_limit_w",
    "heat_limit_w",
)
COMPARED = ("tier", "zone", "rack", "generation", "link_mbps", "power_limit_w", "heat_limit_w")
AMOUNTS = {"cpu_milli": "millicores", "memory_bytes": "bytes of memory"}
CLOSE = 0.9


def completed(facts: NodeFacts, declared: DeclaredNode | None) -> NodeFacts:
    """The facts announced, with what only the declaration knows."""
    if declared is None:
        return facts
    missing = {name: getattr(declared, name) for name in FILLED if getattr(facts, name) is None}
    links = {name: _link(value) for name, value in missing.items() if isinstance(value, DeclaredLink)}
    return facts.model_copy(update={name: value for name, value in (missing | links).items() if value is not None})


def _link(declared: DeclaredLink) -> Link:
    return Link(**declared.model_dump())


def differences(declared: DeclaredNode, facts: NodeFacts) -> Iterator[str]:
    """In words, what the agent announces otherwise than it is declared. What one of them does not say is no difference.

    A machine never has quite the memory that is written on it: up to a tenth less is taken for the same.
    """
    for name in COMPARED:
        said, seen = getattr(declared, name), getattr(facts, name)
        if said is not None and seen is not None and said != seen:
            yield f"{name}: declared {said}, announced {seen}"
    for name, unit in AMOUNTS.items():
        said, seen = getattr(declared, name), getattr(facts, name)
        if said and not said * CLOSE <= seen <= said:
            yield f"{name}: declared {said}, announced {seen} {unit}"
    if declared.cards != len(facts.cards):
        yield f"cards: declared {declared.cards}, announced {len(facts.cards)}"
    models = Counter(card.model for card in facts.cards)
    if declared.card_model is not None and any(model.casefold() != declared.card_model.casefold() for model in models):
        yield f"card_model: declared {declared.card_model}, announced {', '.join(sorted(models))}"
    smallest = min((card.memory_bytes for card in facts.cards), default=None)
    if declared.card_memory_bytes and smallest is not None and smallest < declared.card_memory_bytes * CLOSE:
        yield f"card_memory_bytes: declared {declared.card_memory_bytes}, announced {smallest}"
