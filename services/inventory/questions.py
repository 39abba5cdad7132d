"""What inventory is asked about single nodes and about declarations, and what an operator may do about its breakers."""

from dataclasses import dataclass

from contracts.base import MAX_REPLY_BYTES
from contracts.fleet import (
    BreakerKind,
    BreakerMoved,
    BreakersQuery,
    BreakersReply,
    BreakerTold,
    Day,
    Declared,
    DeclaredPage,
    DeclaredQuery,
    DeclareReply,
    DeclareRequest,
    FaultReset,
    FaultResetReply,
    FaultTold,
    HistoryPage,
    HistoryQuery,
    NodeQuery,
    NodeReply,
)
from contracts.nodes import NodeFacts
from contracts.requests import ProblemCode
from libs.bus import Call, Problem, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from services.inventory import store, store_fleet, store_health
from services.inventory.capacity import Capacity
from services.inventory.core.facts import differences
from services.inventory.core.model import Cause, Move, Node, SkewRules
from services.inventory.core.phases import retell
from services.inventory.core.skew import skew
from services.inventory.core.throttle import enforce, forgive
from services.inventory.effects import Effects, closed
from services.inventory.rows import Portrait
from services.inventory.store_fleet import DeclaredRow

DAYS = 30
PAGE_BYTES = MAX_REPLY_BYTES - 4096
OPERATOR = "operator"


@dataclass(frozen=True)
class Questions:
    """Answers."""

    effects: Effects
    capacity: Capacity
    skew: SkewRules
    clock: Clock

    async def node(self, tx: Tx[Connection], call: Call[NodeQuery]) -> NodeReply:
        """All there is about one node."""
        name = call.body.node
        of = (await store.portraits(tx.conn, [name])).get(name)
        declared = await store_fleet.declared_one(tx.conn, name)
        if of is None:
            if declared is None:
                raise Problem(ProblemCode.NOT_FOUND, f"there is no node {name}: `farside nodes` lists them")
            return NodeReply(declared=_declared(declared))
        judged = (await store.some_nodes(tx.conn, [name]))[name]
        kept = (await store_health.some(tx.conn, [name])).get(name)
        current = None if kept is None or kept.report.incarnation != of.incarnation else kept.report
        return NodeReply(
            state=self.effects.teller.state(of),
            declared=None if declared is None else _declared(declared),
            grade=await self.capacity.one(tx.conn, name),
            faults=_faults(of),
            checks=[] if current is None else current.checks,
            report=current,
            skew_ms=skew(judged, self.skew),
            standing=of.standing.value,
            order=of.order,
            days=[
                Day(day=one.day.isoformat(), utilisation_pct=one.busy_pct_s // one.window_s, measured_s=one.window_s)
                for one in await store_health.days(tx.conn, name, DAYS)
            ],
        )

    async def history(self, tx: Tx[Connection], call: Call[HistoryQuery]) -> HistoryPage:
        """The changes of one node, newest first; the cursor is how many have been shown."""
        body = call.body
        if body.cursor is not None and not body.cursor.isdecimal():
            raise Problem(
                ProblemCode.INVALID, f"cursor is {body.cursor!r}: pass the cursor of the page before, or none"
            )
        shown = int(body.cursor or 0)
        found = await store_fleet.history(tx.conn, body.node, shown, body.limit + 1)
        if not found and shown == 0:
            raise Problem(ProblemCode.NOT_FOUND, f"there is no node {body.node}: `farside nodes` lists them")
        more = len(found) > body.limit
        return HistoryPage(changes=found[: body.limit], cursor=str(shown + body.limit) if more else None)

    async def declared(self, tx: Tx[Connection], call: Call[DeclaredQuery]) -> DeclaredPage:
        """A page of declarations, each beside what is announced."""
        found = await store_fleet.declared_page(tx.conn, call.body.cursor or "", call.body.limit + 1)
        page: list[Declared] = []
        size = 0
        for row in found[: call.body.limit]:
            one = _declared(row)
            size += len(one.model_dump_json()) + 1
            if size > PAGE_BYTES:
                break
            page.append(one)
        return DeclaredPage(nodes=page, cursor=page[-1].node.node if len(page) < len(found) else None)

    async def declare(self, tx: Tx[Connection], call: Call[DeclareRequest]) -> DeclareReply:
        """Keep declarations that say something new, and tell anew the announced nodes that they complete otherwise."""
        await store.lock_clock(tx.conn)
        body, at, actor = call.body, self.clock.now(), call.caller or OPERATOR
        names = [node.node for node in body.nodes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise Problem(ProblemCode.INVALID, f"node {twice} is declared {names.count(twice)} times: declare it once")
        known = await store_fleet.declared_some(tx.conn, names)
        fresh = [node for node in body.nodes if known.get(node.node) != node]
        concerned = [*(node.node for node in fresh), *body.withdrawn]
        before = await store.portraits(tx.conn, concerned)
        await store_fleet.declare(tx.conn, fresh, body.reason, at=at, actor=actor)
        gone = await store_fleet.withdraw(tx.conn, body.withdrawn, body.reason, at=at, actor=actor)
        after, tell = await store.portraits(tx.conn, concerned), self.effects.teller.state
        nodes = await store.some_nodes(tx.conn, [name for name in after if tell(after[name]) != tell(before[name])])
        moves = [retell(one, one, Cause.DECLARED, f"declared otherwise: {body.reason}") for one in nodes.values()]
        await self.effects.run_moves(tx, moves, at=at, actor=actor)
        changed = sum(node.node in known for node in fresh)
        return DeclareReply(
            added=len(fresh) - changed,
            changed=changed,
            unchanged=len(names) - len(fresh),
            withdrawn=len(gone),
        )

    async def breakers(self, tx: Tx[Connection], call: Call[BreakersQuery]) -> BreakersReply:
        """How both breakers are."""
        del call
        silence = await store.breaker_since(tx.conn)
        faults = await store_health.breaker_open(tx.conn)
        held = await store.held(tx.conn)
        faulty = await store.nodes_with_held_faults(tx.conn)
        told = ((BreakerKind.SILENCE, silence, held), (BreakerKind.FAULTS, faults, faulty))
        return BreakersReply(
            breakers=[
                BreakerTold(kind=kind, is_open=False)
                if since is None
                else BreakerTold(kind=kind, is_open=True, opened_at=since[0], reason=since[1], nodes=len(nodes))
                for kind, since, nodes in told
            ]
        )

    async def reset(self, tx: Tx[Connection], call: Call[FaultReset]) -> FaultResetReply:
        """Close the breaker of quarantines; what it holds is set aside, or takes effect."""
        clock = await store.lock_clock(tx.conn)
        at, actor, reason = self.clock.now(), call.caller or OPERATOR, call.body.reason
        times = await store_health.close_breaker(tx.conn, reason, at=at, actor=actor)
        if times is None:
            return FaultResetReply(was_open=False, nodes=0)
        closed(tx, BreakerMoved(kind=BreakerKind.FAULTS, reason=reason, moved_at=at), times, actor)
        nodes = await store.nodes_with_held_faults(tx.conn)
        done = "take effect" if call.body.enforce else "set aside"
        words = f"faults held by the breaker {done}, by {actor}: {reason}"
        moves = [_reset(node, clock.observed_ms, words, enforced=call.body.enforce) for node in nodes]
        await self.effects.run_moves(tx, moves, at=at, actor=actor)
        get_logger().warning("fault_breaker.closed", reason=reason, by=actor, nodes=len(nodes))
        return FaultResetReply(was_open=True, nodes=len(nodes))


def _reset(node: Node, observed_ms: int, words: str, *, enforced: bool) -> Move:
    after = enforce(node, observed_ms) if enforced else forgive(node)
    return retell(node, after, Cause.BREAKER_RESET, words)


def _declared(row: DeclaredRow) -> Declared:
    facts = None if row.facts is None else NodeFacts.model_validate_json(row.facts)
    return Declared(
        node=row.node,
        declared_at=row.at,
        announced=facts is not None,
        differences=[] if facts is None else list(differences(row.node, facts)),
    )


def _faults(of: Portrait) -> list[FaultTold]:
    return [
        FaultTold(code=fault.code, card=fault.card, message=fault.words, remedy=fault.remedy.value, held=fault.held)
        for fault in of.faults
    ]
