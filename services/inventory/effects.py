"""Running what core has decided: rows of the ledger, events in the outbox, lines in the log, all in one transaction."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from contracts import registry
from contracts.nodes import NodeState
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from services.inventory import store
from services.inventory.core.model import (
    Admit,
    Cause,
    CloseBreaker,
    Move,
    Node,
    NodeEvent,
    OpenBreaker,
    Sight,
    TickEffect,
)

SELF = registry.INVENTORY
_MESSAGES = {
    NodeEvent.GRADED: registry.NODES_GRADED,
    NodeEvent.SUSPECT: registry.NODES_SUSPECT,
    NodeEvent.LOST: registry.NODES_LOST,
    NodeEvent.RETURNED: registry.NODES_RETURNED,
}


async def run_tick(tx: Tx[Connection], effects: Iterable[TickEffect], at: datetime) -> None:
    """Run the effects of one tick. Rows of many nodes are written together, so order between nodes is not kept."""
    sights: list[Node] = []
    moves: list[Move] = []
    closing: CloseBreaker | None = None
    for effect in effects:
        match effect:
            case Sight():
                sights.append(effect.node)
            case Move():
                moves.append(effect)
            case OpenBreaker():
                get_logger().error("breaker.opened", reason=effect.reason)
                await store.open_breaker(tx.conn, effect.reason, at)
            case CloseBreaker():
                closing = effect
            case _:
                assert_never(effect)
    await store.save_sights(tx.conn, sights)
    await _run_moves(tx, moves, at)
    if closing is not None:
        await close_breaker(tx, closing.reason, cause=Cause.BREAKER_CLOSED, at=at, actor=SELF)


async def _run_moves(tx: Tx[Connection], moves: Sequence[Move], at: datetime) -> None:
    for move, state in await store.move(tx.conn, moves, at=at, actor=SELF):
        loud = move.event is NodeEvent.LOST or move.cause is Cause.CLAIMED_TWICE
        tell = get_logger().error if loud else get_logger().warning
        tell(f"node.{move.event}", node=state.node, cause=move.cause.value, reason=state.reason)
        emit(tx, move.event, state, SELF)


async def close_breaker(tx: Tx[Connection], reason: str, *, cause: Cause, at: datetime, actor: str) -> int | None:
    """Close the breaker and tell the nodes it held anew; returns how many, None when it was not open."""
    if not await store.close_breaker(tx.conn, reason, at=at, actor=actor):
        return None
    words = f"requeueing released: {reason}"
    states = await store.restate_lost(tx.conn, await store.held(tx.conn), cause=cause, reason=words, at=at, actor=actor)
    for state in states:
        emit(tx, NodeEvent.LOST, state, actor)
    get_logger().warning("breaker.closed", reason=reason, by=actor, released=len(states))
    return len(states)


async def run_admit(tx: Tx[Connection], effect: Admit, *, at: datetime, actor: str) -> None:
    """Take over an announcement and tell it."""
    name = effect.node.name
    for state in await store.restate_lost(
        tx.conn,
        effect.dispossessed,
        cause=Cause.DISPOSSESSED,
        reason=f"its cards are now on node {name}",
        at=at,
        actor=actor,
        superseded_by=name,
    ):
        emit(tx, NodeEvent.LOST, state, actor)
    state = await store.admit(tx.conn, effect, at=at, actor=actor)
    get_logger().info(f"node.{effect.event}", node=name, cause=effect.cause.value, reason=effect.reason)
    emit(tx, effect.event, state, actor)


def emit(tx: Tx[Connection], event: NodeEvent, state: NodeState, actor: str) -> None:
    """Put a node's event into the outbox."""
    tx.emit(_MESSAGES[event], state, key=state.node, subject=state.node, sequence=state.version, actor=actor)
