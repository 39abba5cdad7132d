"""The shell: what inventory does with announcements, the listing of nodes and an operator's release of the breaker."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pydantic import TypeAdapter

from contracts.base import MAX_REPLY_BYTES, NAME_PATTERN
from contracts.nodes import LiveAttempt, NodeAnnounced, NodeState
from contracts.registry import REPLAYS
from contracts.requests import BreakerRelease, BreakerReleased, NodesPage, NodesQuery, ProblemCode
from libs.bus import Call, Event, Problem, Refused, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from services.inventory import store
from services.inventory.core.announce import announce
from services.inventory.core.model import Announcement, Cause, Refuse
from services.inventory.core.model import Clock as StreamClock
from services.inventory.effects import Effects
from services.inventory.reports import Reports
from services.inventory.store import Admission

MAX_FACTS_BYTES = 256 * 1024
MAX_ATTEMPTS = 2048
PAGE_BYTES = MAX_REPLY_BYTES - 4096
NUL = "\\u0000"

Said: TypeAlias = tuple[Announcement, str]
"""An announcement, and who made it."""

_ATTEMPTS: TypeAdapter[list[LiveAttempt]] = TypeAdapter(list[LiveAttempt])


class Announcements:
    """Takes over what agents say of their nodes at their start."""

    def __init__(self, effects: Effects, reports: Reports) -> None:
        self._effects = effects
        self._reports = reports

    async def announced(self, tx: Tx[Connection], events: Sequence[Event[NodeAnnounced]]) -> None:
        """Take over announcements in the order in which they came. What one says again changes nothing."""
        clock = await store.lock_clock(tx.conn)
        said = [(_announcement(event), event.actor or event.source) for event in sorted(events, key=_stored_sequence)]
        for wave in _waves(said):
            await self._take(tx, wave, clock)

    async def _take(self, tx: Tx[Connection], wave: Sequence[Said], clock: StreamClock) -> None:
        """Take over announcements that have nothing to do with each other, or refuse one."""
        names = [said.facts.node for said, _ in wave]
        nodes, facts = await store.some_nodes(tx.conn, names), await store.some_facts(tx.conn, names)
        holders = await store.holders(tx.conn, [card.uuid for said, _ in wave for card in said.facts.cards])
        admissions: list[Admission] = []
        for said, actor in wave:
            name = said.facts.node
            others = {
                card.uuid: holders[card.uuid]
                for card in said.facts.cards
                if card.uuid in holders and holders[card.uuid].node != name
            }
            effect = announce(nodes.get(name), facts.get(name), said, holders=others, observed_ms=clock.observed_ms)
            if isinstance(effect, Refuse):
                raise Refused(effect.reason)
            if effect is not None:
                admissions.append(Admission(effect, said.stored_at, actor))
        await self._effects.run_admissions(tx, admissions)
        await self._reports.judge(tx, [one.effect.node.name for one in admissions], clock)


def _waves(said: Sequence[Said]) -> Iterator[list[Said]]:
    """Announcements divided so that no two of a wave speak of the same node or card."""
    wave: list[Said] = []
    taken: set[str] = set()
    for one in said:
        facts = one[0].facts
        marks = {f"node {facts.node}", *(card.uuid for card in facts.cards)}
        if marks & taken:
            yield wave
            wave, taken = [], set()
        wave.append(one)
        taken |= marks
    yield wave


def _stored_sequence(event: Event[NodeAnnounced]) -> int:
    assert event.delivery is not None, "announcements come from a stream"
    return event.delivery.stream_sequence


def _announcement(event: Event[NodeAnnounced]) -> Announcement:
    body = event.body
    facts = body.facts.model_dump_json()
    if len(facts) > MAX_FACTS_BYTES:
        msg = (
            f"the facts of node {event.key} have {len(facts)} bytes, the most is {MAX_FACTS_BYTES}: shorten the labels"
        )
        raise Refused(msg)
    if NUL in facts:
        msg = f"the facts of node {event.key} hold a NUL character, which no ledger can keep: remove it"
        raise Refused(msg)
    if len(body.attempts) > MAX_ATTEMPTS:
        msg = f"node {event.key} announces {len(body.attempts)} attempts, the most is {MAX_ATTEMPTS}"
        raise Refused(msg)
    assert event.delivery is not None, "announcements come from a stream"
    return Announcement(
        facts=body.facts,
        incarnation=body.incarnation,
        attempts=_ATTEMPTS.dump_json(body.attempts).decode(),
        announced_at=body.announced_at,
        stored_at=event.delivery.stored_at,
        replayed=event.delivery.stream == REPLAYS.name,
    )


class Listing:
    """Lists nodes."""

    def __init__(self, effects: Effects) -> None:
        self._teller = effects.teller

    async def nodes(self, tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
        """Nodes in order of name; a page ends where the reply would grow too large."""
        after = call.body.cursor or ""
        if after and re.fullmatch(NAME_PATTERN, after) is None:
            msg = f"cursor is {after!r}: pass the cursor of the page before, or none"
            raise Problem(ProblemCode.INVALID, msg)
        found = await store.page(tx.conn, after, call.body.limit + 1)
        nodes: list[NodeState] = []
        size = 0
        for of in found[: call.body.limit]:
            state = self._teller.state(of)
            size += len(state.model_dump_json()) + 1
            if size > PAGE_BYTES:
                break
            nodes.append(state)
        return NodesPage(nodes=nodes, cursor=nodes[-1].node if len(nodes) < len(found) else None)


class Release:
    """Serves the operator's release of what the breaker holds."""

    def __init__(self, effects: Effects, clock: Clock) -> None:
        self._effects = effects
        self._clock = clock

    async def __call__(self, tx: Tx[Connection], call: Call[BreakerRelease]) -> BreakerReleased:
        """Close the breaker by hand. Nodes lost up to now no longer count toward it."""
        await store.lock_clock(tx.conn)
        actor = call.caller or "operator"
        released = await self._effects.close_breaker(
            tx, call.body.reason, cause=Cause.RELEASED, at=self._clock.now(), actor=actor
        )
        if released is None:
            return BreakerReleased(was_open=False, released=0)
        await store.forget_losses(tx.conn)
        return BreakerReleased(was_open=True, released=released)
