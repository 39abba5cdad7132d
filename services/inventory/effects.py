"""Running what core has decided: rows of the ledger, events in the outbox, lines in the log, all in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from contracts import registry
from contracts.fleet import BreakerKind, BreakerMoved
from contracts.nodes import NodeState
from libs.bus import Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from services.inventory import store, store_health
from services.inventory.core.model import (
    Cause,
    CloseBreaker,
    Move,
    Node,
    NodeEvent,
    OpenBreaker,
    OpenFaultBreaker,
    Sight,
    TickEffect,
)
from services.inventory.rows import Portrait
from services.inventory.store import Admission
from services.inventory.telling import Teller

SELF = registry.INVENTORY
_MESSAGES = {
    NodeEvent.GRADED: registry.NODES_GRADED,
    NodeEvent.SUSPECT: registry.NODES_SUSPECT,
    NodeEvent.LOST: registry.NODES_LOST,
    NodeEvent.RETURNED: registry.NODES_RETURNED,
    NodeEvent.QUARANTINED: registry.NODES_QUARANTINED,
    NodeEvent.RELEASED: registry.NODES_RELEASED,
}
_LOUD = {NodeEvent.LOST, NodeEvent.QUARANTINED}


@dataclass(frozen=True)
class Effects:
    """Runs effects, and tells nodes as `teller` words them."""

    teller: Teller

    async def run_tick(self, tx: Tx[Connection], effects: Iterable[TickEffect], at: datetime) -> None:
        """Run the effects of one tick. Rows of many nodes are written together: order between nodes is not kept."""
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
                    times = await store.open_breaker(tx.conn, effect.reason, at)
                    opened(tx, BreakerMoved(kind=BreakerKind.SILENCE, reason=effect.reason, moved_at=at), times)
                case OpenFaultBreaker():
                    await self.open_fault_breaker(tx, effect, at)
                case CloseBreaker():
                    closing = effect
                case _:
                    assert_never(effect)
        await store.save_sights(tx.conn, sights)
        await self.run_moves(tx, moves, at=at, actor=SELF)
        if closing is not None:
            await self.close_breaker(tx, closing.reason, cause=Cause.BREAKER_CLOSED, at=at, actor=SELF)

    async def run_health(self, tx: Tx[Connection], effects: Iterable[Move | OpenFaultBreaker], at: datetime) -> None:
        """Run what follows from reports."""
        moves: list[Move] = []
        for effect in effects:
            if isinstance(effect, OpenFaultBreaker):
                await self.open_fault_breaker(tx, effect, at)
            else:
                moves.append(effect)
        await self.run_moves(tx, moves, at=at, actor=SELF)

    async def run_moves(
        self, tx: Tx[Connection], moves: Sequence[Move], *, at: datetime, actor: str
    ) -> list[NodeState]:
        """Move nodes and tell it; one move for a node at most."""
        states: list[NodeState] = []
        for move, portrait in await store.move(tx.conn, moves, at=at, actor=actor):
            loud = move.event in _LOUD or move.cause is Cause.CLAIMED_TWICE
            tell = get_logger().error if loud else get_logger().warning
            tell(f"node.{move.event}", node=portrait.name, cause=move.cause.value, reason=portrait.reason)
            states.append(self.emit(tx, move.event, portrait, actor))
        return states

    async def open_fault_breaker(self, tx: Tx[Connection], effect: OpenFaultBreaker, at: datetime) -> None:
        """From now on faults have no effect."""
        get_logger().error("fault_breaker.opened", reason=effect.reason)
        times = await store_health.open_breaker(tx.conn, effect.reason, at)
        opened(tx, BreakerMoved(kind=BreakerKind.FAULTS, reason=effect.reason, moved_at=at), times)

    async def close_breaker(
        self, tx: Tx[Connection], reason: str, *, cause: Cause, at: datetime, actor: str
    ) -> int | None:
        """Close the breaker and tell the nodes it held anew; returns how many, None when it was not open."""
        times = await store.close_breaker(tx.conn, reason, at=at, actor=actor)
        if times is None:
            return None
        closed(tx, BreakerMoved(kind=BreakerKind.SILENCE, reason=reason, moved_at=at), times, actor)
        words = f"requeueing released: {reason}"
        held = await store.held(tx.conn)
        for portrait in await store.restate_lost(tx.conn, held, cause=cause, reason=words, at=at, actor=actor):
            self.emit(tx, NodeEvent.LOST, portrait, actor)
        get_logger().warning("breaker.closed", reason=reason, by=actor, released=len(held))
        return len(held)

    async def run_admissions(self, tx: Tx[Connection], admissions: Sequence[Admission]) -> None:
        """Take over announcements, one of a node at most, and tell them."""
        for one in admissions:
            await self._dispossess(tx, one)
        portraits = await store.admit(tx.conn, admissions)
        for one in admissions:
            effect, name = one.effect, one.effect.node.name
            get_logger().info(f"node.{effect.event}", node=name, cause=effect.cause.value, reason=effect.reason)
            self.emit(tx, effect.event, portraits[name], one.actor)

    async def _dispossess(self, tx: Tx[Connection], one: Admission) -> None:
        """Tell the lost nodes whose cards are now on another."""
        name = one.effect.node.name
        for portrait in await store.restate_lost(
            tx.conn,
            one.effect.dispossessed,
            cause=Cause.DISPOSSESSED,
            reason=f"its cards are now on node {name}",
            at=one.at,
            actor=one.actor,
            superseded_by=name,
        ):
            self.emit(tx, NodeEvent.LOST, portrait, one.actor)

    def emit(self, tx: Tx[Connection], event: NodeEvent, of: Portrait, actor: str) -> NodeState:
        """Put a node's event into the outbox."""
        state = self.teller.state(of)
        tx.emit(_MESSAGES[event], state, key=state.node, subject=state.node, sequence=state.version, actor=actor)
        return state


def opened(tx: Tx[Connection], moved: BreakerMoved, times: int) -> None:
    """Tell that a breaker has opened; `times`: how often it has, this one included."""
    tx.emit(
        registry.BREAKERS_OPENED, moved, key=registry.NO_KEY, subject=moved.kind, sequence=2 * times - 1, actor=SELF
    )


def closed(tx: Tx[Connection], moved: BreakerMoved, times: int, actor: str) -> None:
    """Tell that a breaker that has opened so often is closed."""
    tx.emit(registry.BREAKERS_CLOSED, moved, key=registry.NO_KEY, subject=moved.kind, sequence=2 * times, actor=actor)
