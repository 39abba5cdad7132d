"""The node's health report: looked at at a pace, told when something has changed that matters, and every few minutes.

In: the driver, the listener for XIDs, the checks. Out: `nodes.reported` through the outbox, so that the newest report
arrives however long the hub is away. XIDs are kept in the same transaction: an agent started anew still knows them.
"""

import asyncio
import sqlite3
from collections.abc import Sequence

from contracts import registry
from contracts.health import CheckResult, ClockFacts, NodeReported, Xid
from contracts.nodes import Card, CardSource
from libs.bus import Tx
from libs.kit.clock import Clock
from libs.kit.logs import get_logger
from services.agent import proctree, store, xidbook
from services.agent.core.health import CardHistory, due
from services.agent.core.model import Speaker
from services.agent.patience import Patience
from services.agent.places import Places
from services.agent.probe import checks, health
from services.agent.probe.driver import Driver
from services.agent.probe.health import Look
from services.agent.probe.xids import Sighting, XidListener
from services.agent.settings import AgentSettings
from services.agent.store import Transaction

CHECKS_S = 60.0
UNNAMED = "card-{}"


class Reporter:
    """Looks at the node's health for as long as the agent runs."""

    def __init__(
        self, settings: AgentSettings, places: Places, driver: Driver, cards: Sequence[Card], me: Speaker, clock: Clock
    ) -> None:
        self._settings = settings
        self._places = places
        self._driver = driver
        self._cards = cards
        self._uuids = {card.index: card.uuid for card in cards if card.source == CardSource.NVML}
        self._me = me
        self._clock = clock
        self._boot = proctree.boot_id()
        self._looking: Patience[list[Look]] = Patience("health", settings.driver_s)
        self._checking: Patience[tuple[ClockFacts, CheckResult]] = Patience("checks", settings.driver_s)
        self._history: dict[int, CardHistory] = {}
        self._checked: tuple[ClockFacts | None, list[CheckResult]] = (None, [])
        self._checked_s: float | None = None
        self._last: NodeReported | None = None
        self._told_s = 0.0
        self._counter = 0
        self._sightings: list[Sighting] = []
        self._woken = asyncio.Event()

    async def run(self, transaction: Transaction) -> None:
        """Look and tell, until cancelled."""
        loop = asyncio.get_running_loop()
        listener = XidListener(self._driver, self._clock, lambda: loop.call_soon_threadsafe(self._woken.set))
        listener.start()
        try:
            while True:
                self._woken.clear()
                await self._once(transaction, listener)
                await self._pause()
        finally:
            listener.stop()

    async def _once(self, transaction: Transaction, listener: XidListener) -> None:
        looks = await self._look()
        at_s = proctree.boottime()
        clock, done = await self._check(at_s)
        self._sightings += listener.take()
        cards = [self._seen(look, at_s) for look in looks]
        done = [*done, checks.cards(self._cards, cards)]
        async with transaction() as tx:
            xids = self._note(tx.conn)
            report = NodeReported(
                node=self._me.node,
                incarnation=self._me.incarnation,
                counter=self._counter + 1,
                boot_id=self._boot,
                cards=[card.model_copy(update={"xids": xids.get(card.uuid, [])}) for card in cards],
                checks=done,
                clock=clock,
                window_s=int(at_s - self._told_s) if self._last is not None else 0,
                reported_at=self._clock.now(),
            )
            telling = due(report, self._last, at_s - self._told_s, self._settings.report_s)
            if telling:
                self._emit(tx, report)
        self._sightings.clear()
        if telling:
            self._told(report, at_s)

    async def _look(self) -> list[Look]:
        """A look at every card; those announced that the driver shows no more are among them, with a fault."""
        try:
            looks = await self._looking.ask(self._look_now)
        except TimeoutError:
            get_logger().error("health.driver_hangs", node=self._me.node, after_s=self._settings.driver_s)
            looks = []
        seen = {look.card.index for look in looks}
        missing = [health.silent(index, uuid) for index, uuid in self._uuids.items() if index not in seen]
        return sorted([*looks, *missing], key=lambda look: look.card.index)

    def _look_now(self) -> list[Look]:
        return [health.look(asking, self._uuids.get(asking.index)) for asking in self._driver.cards()]

    def _seen(self, look: Look, at_s: float) -> health.CardHealth:
        history = self._history.setdefault(look.card.index, CardHistory())
        return history.add(look.card, look.link_crc_errors, slowed=look.slowed, at_s=at_s)

    async def _check(self, at_s: float) -> tuple[ClockFacts | None, list[CheckResult]]:
        """What the machine says of its clock and its disk, asked anew every minute."""
        if self._checked_s is None or at_s - self._checked_s >= CHECKS_S:
            try:
                clock, disk = await self._checking.ask(self._check_now)
            except TimeoutError:
                get_logger().error("checks.hang", node=self._me.node, after_s=self._settings.driver_s)
                words = f"the folder of attempts did not answer within {self._settings.driver_s:g} s"
                hung = CheckResult(name=checks.DISK_SPACE, verdict=checks.Verdict.FAILED, detail=words)
                clock, disk = ClockFacts(), hung
            synced = checks.time_sync(clock, required=self._settings.time_sync_required)
            self._checked, self._checked_s = (clock, [synced, disk]), at_s
        return self._checked

    def _check_now(self) -> tuple[ClockFacts, CheckResult]:
        return checks.clock(), checks.disk_space(self._places.attempts, self._settings.disk_free_bytes)

    def _note(self, conn: sqlite3.Connection) -> dict[str, list[Xid]]:
        """Keep the XIDs that have come; all of this boot, by card."""
        for one in self._sightings:
            uuid = self._uuids.get(one.index, UNNAMED.format(one.index))
            get_logger().error("card.xid", node=self._me.node, card=one.index, uuid=uuid, xid=one.code)
            xidbook.note(conn, self._boot, uuid, one.code, one.at)
        return xidbook.since_boot(conn, self._boot)

    def _emit(self, tx: Tx[sqlite3.Connection], report: NodeReported) -> None:
        tx.emit(
            registry.NODES_REPORTED,
            report,
            key=self._me.node,
            subject=self._me.node,
            sequence=store.count_up(tx.conn, "reports"),
            actor=f"agent/{self._me.node}",
            incarnation=self._me.incarnation,
        )

    def _told(self, report: NodeReported, at_s: float) -> None:
        self._last, self._told_s, self._counter = report, at_s, report.counter
        for history in self._history.values():
            history.reported()
        failed = [f"{check.name}: {check.detail}" for check in report.checks if check.verdict == checks.Verdict.FAILED]
        tell = get_logger().warning if failed else get_logger().info
        tell("node.reported", node=report.node, counter=report.counter, cards=len(report.cards), failed=failed)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._settings.health_s):
                await self._woken.wait()
        except TimeoutError:
            return
