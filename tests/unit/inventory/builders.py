"""Short ways to say nodes, clocks and announcements in tests."""

from datetime import UTC, datetime, timedelta

from contracts.base import Tier
from contracts.nodes import Card, CardSource, NodeFacts, NodePhase
from services.inventory.core.model import Announcement, Beat, BreakerRules, Census, Clock, Node, Timings

T0 = datetime(2030, 1, 1, tzinfo=UTC)
TIMINGS = Timings(suspect_ms=15_000, lease_ms=240_000, lost_ms=270_000, gap_ms=5_000)
RULES = BreakerRules(share=0.5, window_ms=60_000)
CALM = Census(ready=100, suspect=0, lost_lately=0)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def incarnation(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012d}"


def clock(observed_s: float, *, floor_s: float = 0) -> Clock:
    return Clock(
        stream="one",
        read_sequence=10,
        tick_at=at(observed_s),
        observed_ms=round(observed_s * 1000),
        floor_ms=round(floor_s * 1000),
    )


def node(  # a node under agent start 1, last heard and seen at the given readings of the observed clock
    name: str = "a", *, phase: NodePhase = NodePhase.READY, seen_s: float = 0, heard_s: float | None = None
) -> Node:
    return Node(
        name=name,
        phase=phase,
        incarnation=incarnation(1),
        announced_at=T0,
        stored_at=T0,
        seen_ms=round(seen_s * 1000),
        heard_ms=round((seen_s if heard_s is None else heard_s) * 1000),
        lost_ms=round(seen_s * 1000) if phase is NodePhase.LOST else None,
    )


def beat(name: str = "a", *, start: int = 1, counter: int = 1, lease_s: int = 240) -> Beat:
    return Beat(name, incarnation(start), counter, lease_ms=lease_s * 1000, skew_ms=7, attempts="[]")


def card(index: int, uuid: str) -> Card:
    return Card(index=index, uuid=uuid, model="H200", memory_bytes=141 * 10**9, source=CardSource.DECLARED)


def facts(name: str = "a", *uuids: str, version: str = "1") -> NodeFacts:
    return NodeFacts(
        node=name,
        tier=Tier.CENTRAL,
        zone="z1",
        address="127.0.0.1",
        version=version,
        cpu_milli=8000,
        memory_bytes=2**34,
        cards=[card(index, uuid) for index, uuid in enumerate(uuids)],
    )


def announcement(
    said: NodeFacts, *, start: int = 1, announced_s: float = 0, stored_s: float = 0, replayed: bool = False
) -> Announcement:
    return Announcement(said, incarnation(start), "[]", at(announced_s), at(stored_s), replayed=replayed)
