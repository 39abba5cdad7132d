"""Rows of the ledger as values, and back."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from contracts.fleet import DeclaredNode
from contracts.nodes import LiveAttempt, NodeFacts, NodePhase
from libs.db import Row
from services.inventory.core.model import Fault, Node, Stage, Standing

NO_FAULTS = "[]"

_ATTEMPTS: TypeAdapter[list[LiveAttempt]] = TypeAdapter(list[LiveAttempt])
_FAULTS: TypeAdapter[tuple[Fault, ...]] = TypeAdapter(tuple[Fault, ...])


@dataclass(frozen=True, slots=True)
class Portrait:
    """All that is told of a node, as the ledger has it."""

    name: str
    version: int
    told: NodePhase
    facts: NodeFacts
    declared: DeclaredNode | None
    incarnation: str
    attempts: list[LiveAttempt]
    reason: str
    requeue_held: bool
    since: datetime
    standing: Standing
    order: str
    faults: tuple[Fault, ...]
    link_mbps: int | None
    card_power_w: int | None
    critical: bool


def node_of(row: Row) -> Node:
    """What is judged of a node."""
    return Node(
        name=row["node"],
        phase=NodePhase(row["phase"]),
        incarnation=row["incarnation"],
        announced_at=row["announced_at"],
        stored_at=row["stored_at"],
        seen_ms=row["seen_ms"],
        heard_ms=row["heard_ms"],
        lease_ms=row["lease_ms"],
        counter=row["counter"],
        skew_ms=row["skew_ms"],
        attempts=row["attempts"],
        noise=row["noise"],
        rival=row["rival"],
        rival_counter=row["rival_counter"],
        rival_ms=row["rival_ms"],
        lost_ms=row["lost_ms"],
        requeue_held=row["requeue_held"],
        superseded_by=row["superseded_by"],
        stage=Stage(row["stage"]),
        standing=Standing(row["standing"]),
        order=row["order_words"],
        faults=_faults(row["faults"]),
        acted_ms=row["acted_ms"],
        cards=row["cards"],
        promised=row["promised"],
        skew_low_ms=row["skew_low_ms"],
        skew_before_ms=row["skew_before_ms"],
        skew_from_ms=row["skew_from_ms"],
    )


def faults_json(node: Node) -> str:
    """The faults of a node as the ledger keeps them."""
    return _FAULTS.dump_json(node.faults).decode() if node.faults else NO_FAULTS


def _faults(text: str) -> tuple[Fault, ...]:
    return () if text == NO_FAULTS else _FAULTS.validate_json(text)


def sight_columns(node: Node) -> tuple[Any, ...]:
    """The columns of `sightings`, in the order that the queries name them."""
    return (
        node.name,
        node.seen_ms,
        node.heard_ms,
        node.lease_ms,
        node.counter,
        node.skew_ms,
        node.attempts,
        node.noise,
        node.rival,
        node.rival_counter,
        node.rival_ms,
        node.skew_low_ms,
        node.skew_before_ms,
        node.skew_from_ms,
    )


def portrait_of(row: Row) -> Portrait:
    """What is told of a node."""
    declared = row["declared"]
    return Portrait(
        name=row["node"],
        version=row["version"],
        told=NodePhase(row["told"]),
        facts=NodeFacts.model_validate_json(row["facts"]),
        declared=None if declared is None else DeclaredNode.model_validate_json(declared),
        incarnation=row["incarnation"],
        attempts=_ATTEMPTS.validate_json(row["attempts"]),
        reason=row["reason"],
        requeue_held=row["requeue_held"],
        since=row["since"],
        standing=Standing(row["standing"]),
        order=row["order_words"],
        faults=_faults(row["faults"]),
        link_mbps=row["link_mbps"],
        card_power_w=row["card_power_w"],
        critical=row["critical"],
    )
