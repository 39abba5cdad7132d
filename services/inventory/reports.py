"""What agents report of their nodes' health, many in one transaction; the newest of each node counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from contracts.health import NodeReported
from libs.bus import Event, Tx
from libs.db import Connection
from libs.kit.logs import get_logger
from services.inventory import store, store_health
from services.inventory.core.changes import learnt
from services.inventory.core.facts import completed
from services.inventory.core.health import Memory, examine, is_news
from services.inventory.core.limits import assessed, limits
from services.inventory.core.model import BreakerRules, Clock, Move, Node
from services.inventory.core.rules import HealthRules
from services.inventory.core.throttle import throttle
from services.inventory.effects import Effects
from services.inventory.rows import Portrait
from services.inventory.store_health import Busy, Kept

MAX_BODY = 256 * 1024
MAX_WINDOW_S = 86_400
MILLIWATTS = 1000
NUL = "\\u0000"


@dataclass(frozen=True)
class _Judged:
    """What follows from one report: a move, and what is left for the next report."""

    move: Move | None
    left: tuple[str, Memory, int | None, int | None]


@dataclass(frozen=True)
class Reports:
    """Takes reports; `breaker` bounds how much of the fleet they may take out of the pool."""

    effects: Effects
    rules: HealthRules
    breaker: BreakerRules

    async def reported(self, tx: Tx[Connection], events: Sequence[Event[NodeReported]]) -> None:
        """Keep each newest report and judge those of agent starts that have announced themselves.

        One that comes before the announcement of its agent start is judged with it.
        """
        clock = await store.lock_clock(tx.conn)
        newest: dict[str, tuple[NodeReported, datetime]] = {}
        for event in sorted(events, key=_stored_sequence):
            if _keepable(event):
                newest[event.key] = (event.body, _stored_at(event))
        await store_health.save(tx.conn, list(newest.values()))
        await self.judge(tx, set(newest), clock)

    async def judge(self, tx: Tx[Connection], names: Collection[str], clock: Clock) -> None:
        """Judge what is kept of these nodes, where it is news."""
        kept = await store_health.some(tx.conn, names)
        nodes = await store.some_nodes(tx.conn, kept)
        news = [name for name, node in nodes.items() if is_news(node, kept[name].memory, kept[name].report)]
        if not news:
            return
        portraits = await store.portraits(tx.conn, news)
        found = [self._judge(nodes[name], kept[name], portraits[name], clock) for name in news]
        await store_health.remember(tx.conn, [one.left for one in found])
        await store_health.add_days(tx.conn, [busy for name in news if (busy := _busy(kept[name].report)) is not None])
        effects = throttle(
            [(nodes[one.move.node.name], one.move) for one in found if one.move is not None],
            await store.fault_census(tx.conn, clock.observed_ms - self.breaker.window_ms),
            observed_ms=clock.observed_ms,
            breaker_open=await store_health.breaker_open(tx.conn) is not None,
            rules=self.breaker,
        )
        await self.effects.run_health(tx, effects, max(kept[name].stored_at for name in news))

    def _judge(self, node: Node, kept: Kept, of: Portrait, clock: Clock) -> _Judged:
        facts = completed(of.facts, of.declared)
        examined = examine(
            node,
            kept.memory,
            kept.report,
            prechecks=facts.prechecks,
            rules=self.rules,
            observed_ms=clock.observed_ms,
        )
        link, power = assessed(kept.link_mbps, kept.report.link_mbps), _card_power_w(kept)
        headroom = self.effects.teller.headroom_pct
        before = limits(facts, kept.link_mbps, kept.card_power_w, headroom)
        reassessed = before != limits(facts, link, power, headroom)
        move = learnt(node, examined.node, reassessed=reassessed)
        return _Judged(move, (node.name, examined.memory, link, power))


def _card_power_w(kept: Kept) -> int | None:
    """What one card may draw at its own limit; the largest of the node's, rounded up."""
    told = [card.power_limit_mw for card in kept.report.cards if card.power_limit_mw is not None]
    return max(-(-value // MILLIWATTS) for value in told) if told else kept.card_power_w


def _busy(report: NodeReported) -> Busy | None:
    """How busy the cards were in the report's window; None where nothing was measured."""
    told = [card.utilisation_pct for card in report.cards if card.utilisation_pct is not None]
    window_s = min(report.window_s, MAX_WINDOW_S)
    if not told or window_s == 0:
        return None
    day = report.reported_at.astimezone(UTC).date()
    return Busy(report.node, day, sum(told) * window_s // len(told), window_s)


def _stored_sequence(event: Event[NodeReported]) -> int:
    assert event.delivery is not None, "reports come from a stream"
    return event.delivery.stream_sequence


def _stored_at(event: Event[NodeReported]) -> datetime:
    assert event.delivery is not None, "reports come from a stream"
    return event.delivery.stored_at


def _keepable(event: Event[NodeReported]) -> bool:
    """Whether a ledger can keep it; the next one may be better, so nothing is buried."""
    body = event.body.model_dump_json()
    if len(body) <= MAX_BODY and NUL not in body:
        return True
    get_logger().error("report.refused", node=event.key, size=len(body), limit=MAX_BODY)
    return False
