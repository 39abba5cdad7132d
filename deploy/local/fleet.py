"""What the local stack consists of: the nodes of its fleet, the names of its parts, its tenants and rates."""

from dataclasses import dataclass
from pathlib import Path

from contracts.base import Tier
from contracts.registry import SERVICES

REPOSITORY = Path(__file__).parents[2]
TENANTS_DIR = Path(__file__).with_name("tenants")
RATES_DIR = Path(__file__).with_name("rates")


@dataclass(frozen=True)
class Node:
    """A node of the local fleet with `cards` declared ones; remote nodes reach the hub through the leaf."""

    name: str
    tier: Tier
    cards: int

    @property
    def behind_leaf(self) -> bool:
        """Whether its agent speaks to the leaf node."""
        return self.tier is Tier.REMOTE


NODES = (
    Node("central-1", Tier.CENTRAL, 2),
    Node("central-2", Tier.CENTRAL, 2),
    Node("remote-1", Tier.REMOTE, 1),
    Node("remote-2", Tier.REMOTE, 1),
)


def names(nodes: tuple[Node, ...] = NODES) -> tuple[str, ...]:
    """Every part and step of the stack, in the order in which they are shown."""
    return ("postgres", "nats", "leaf", "seaweed", "provision", *SERVICES, *(node.name for node in nodes))
