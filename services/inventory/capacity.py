"""Grades and capacity: the whole fleet looked at together, a page of nodes at a time, kept for a moment."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from contracts.base import MAX_REPLY_BYTES, Tier
from contracts.fleet import (
    Assessment,
    AssessRequest,
    CapacityQuery,
    GradesPage,
    GradesQuery,
    NodeGrade,
)
from contracts.jobs import JobState
from contracts.nodes import NodeState
from libs.bus import Call, Event, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from services.inventory import store, store_fleet
from services.inventory.core.capacity import CapacityRules, assess, with_releases
from services.inventory.core.facts import completed
from services.inventory.core.promises import promise
from services.inventory.rows import Portrait
from services.inventory.telling import Teller, bad_cards, takes_work

PAGE = 500
PAGE_BYTES = MAX_REPLY_BYTES - 4096
FRESH_S = 3.0
KEEP_ENDED = timedelta(days=31)  # longer than the stream of jobs keeps an event that could come late


@dataclass(frozen=True)
class Survey:
    """The fleet, graded, at a moment of the monotonic clock."""

    grades: list[NodeGrade]
    remote: list[NodeState]
    taken_s: float


@dataclass
class Capacity:
    """Answers what the fleet is worth and what of it is free."""

    teller: Teller
    rules: CapacityRules
    clock: Clock
    _survey: Survey | None = field(default=None, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def promised(self, tx: Tx[Connection], events: Sequence[Event[JobState]]) -> None:
        """Keep what the scheduler has promised; the newest state of each job counts."""
        await store.lock_clock(tx.conn)
        newest: dict[str, JobState] = {}
        for event in events:
            known = newest.get(event.body.job_id)
            if known is None or known.version < event.body.version:
                newest[event.body.job_id] = event.body
        await store_fleet.save_promises(tx.conn, [promise(state) for state in newest.values()])

    async def grades(self, tx: Tx[Connection], call: Call[GradesQuery]) -> GradesPage:
        """A page of grades in order of name; it ends where the reply would grow too large."""
        after = call.body.cursor or ""
        left = [one for one in (await self._look(tx.conn)).grades if one.node > after]
        page: list[NodeGrade] = []
        size = 0
        for one in left[: call.body.limit]:
            size += len(one.model_dump_json()) + 1
            if size > PAGE_BYTES:
                break
            page.append(one)
        return GradesPage(grades=page, cursor=page[-1].node if len(page) < len(left) else None)

    async def capacity(self, tx: Tx[Connection], call: Call[CapacityQuery]) -> Assessment:
        """The assessment as it is now."""
        del call
        return await self._assess(tx.conn, await self._look(tx.conn))

    async def assess(self, tx: Tx[Connection], call: Call[AssessRequest]) -> Assessment:
        """Write the assessment out, under a version of its own if it says anything new."""
        await store.lock_clock(tx.conn)
        found = await self._assess(tx.conn, await self._take(tx.conn))
        text = found.model_dump_json(exclude={"assessed_at", "version"})
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        newest = await store_fleet.newest_assessment(tx.conn)
        await store_fleet.prune_promises(tx.conn, found.assessed_at - KEEP_ENDED)
        if newest is not None and newest[1] == sha256:
            return found.model_copy(update={"version": newest[0]})
        version = 1 if newest is None else newest[0] + 1
        written = found.model_copy(update={"version": version})
        actor = f"{call.caller or 'operator'}: {call.body.reason}"
        body = written.model_dump_json()
        await store_fleet.save_assessment(tx.conn, version, sha256, body, at=found.assessed_at, actor=actor)
        return written

    async def one(self, conn: Connection, node: str) -> NodeGrade | None:
        """The grade of one node."""
        return next((one for one in (await self._look(conn)).grades if one.node == node), None)

    async def _assess(self, conn: Connection, survey: Survey) -> Assessment:
        base = Assessment(
            assessed_at=self.clock.now(), headroom_pct=self.rules.headroom_pct, tiers=[], rows=[], classes=[]
        )
        absent = await store_fleet.declared_absent(conn)
        return assess(survey.grades, survey.remote, rules=self.rules, absent=absent, base=base)

    async def _look(self, conn: Connection) -> Survey:
        """A survey that is a moment old at most: pages of one listing are of the same."""
        async with self._looking:
            if self._survey is None or self.clock.monotonic() - self._survey.taken_s > FRESH_S:
                self._survey = await self._take(conn)
            return self._survey

    async def _take(self, conn: Connection) -> Survey:
        now, grades, remote, after = self.clock.now(), list[NodeGrade](), list[NodeState](), ""
        while page := await store.page(conn, after, PAGE):
            after = page[-1].name
            grades += await self._graded(conn, page, now)
            remote += [self.teller.state(of) for of in page if of.facts.tier is Tier.REMOTE]
        asked = await store_fleet.asked_milli(conn)
        found = with_releases(grades, asked_milli=asked, headroom_pct=self.rules.headroom_pct)
        return Survey(found, remote, self.clock.monotonic())

    async def _graded(self, conn: Connection, page: Sequence[Portrait], now: datetime) -> list[NodeGrade]:
        names = [of.name for of in page]
        promised = await store_fleet.promised(conn, names)
        since = await store_fleet.idle_since(conn, names)
        busy = await store_fleet.utilisation(conn, names, now)
        return [self._grade(of, promised.get(of.name, {}), since.get(of.name), busy.get(of.name)) for of in page]

    def _grade(self, of: Portrait, jobs: dict[str, int], since: datetime | None, busy_pct: int | None) -> NodeGrade:
        graded = self.teller.graded(of)
        running = {attempt.job_id for attempt in of.attempts}
        return NodeGrade(
            node=of.name,
            tier=of.facts.tier,
            state=of.told,
            grade=graded.grade,
            score=graded.score,
            node_class=graded.node_class,
            scarce=graded.scarce,
            reasons=list(graded.reasons),
            cards=len(of.facts.cards),
            cards_usable=len(of.facts.cards) - len(bad_cards(of)) if takes_work(of) else 0,
            cards_promised_milli=sum(jobs.values()),
            cards_used_milli=sum(milli for job, milli in jobs.items() if job in running),
            utilisation_pct=busy_pct,
            idle_since=None if running or jobs else since,
            cost=completed(of.facts, of.declared).cost,
            releasable=False,
        )
