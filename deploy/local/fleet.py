"""What the local stack consists of: the nodes of its fleet, the names of its parts, its tenants and rates."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from contracts.base import NAME_PATTERN, Tier
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


def tenants_of(folder: Path) -> list[str]:
    """The tenants of a folder of tenant files; what is wrong in a file is for the scheduler to tell."""
    found: set[str] = set()
    for path in folder.glob("*.yaml"):
        try:
            content: Any = yaml.safe_load(path.read_text())
        except (OSError, ValueError, yaml.YAMLError):
            continue
        name = cast("dict[str, Any]", content).get("tenant") if isinstance(content, dict) else None
        if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
            found.add(name)
    return sorted(found)


def names(nodes: tuple[Node, ...] = NODES) -> tuple[str, ...]:
    """Every part and step of the stack, in the order in which they are shown."""
    return ("postgres", "nats", "leaf", "seaweed", "provision", *SERVICES, *(node.name for node in nodes))
