"""Which nodes are alive: what was heard of each, and what follows from it on the observed clock."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, assert_never

from contracts.nodes import NodePhase
from services.inventory.core.breaker import judge_breaker
from services.inventory.core.model import (
    Beat,
    BreakerRules,
    Cause,
    Census,
    Clock,
    FaultCensus,
    Move,
    Node,
    NodeEvent,
    Noise,
    OpenFaultBreaker,
    Sight,
    SkewRules,
    Sound,
    Stage,
    Standing,
    TickEffect,
    Timings,
)
from services.inventory.core.phases import retell
from services.inventory.core.skew import judge_skew, note_skew
from services.inventory.core.throttle import throttle

FaultJudge: TypeAlias = Callable[[Sequence[tuple[Node, Move]]], Iterator[Move | OpenFaultBreaker]]
SKEW = SkewRules(bound_ms=2_000, delay_ms=2_000, window_ms=30_000)
NOTHING = "[]"


def hear(node: Node, sound: Sound, observed_ms: int, window_ms: int = SKEW.window_ms) -> Node:
    """`node` after something came on its heartbeat subject.

    Whatever it is, its sender got an acknowledgement and may count a lease from it, so it puts off the loss of the
    node. Only a heartbeat of the agent start in force keeps the node ready.
    """
    heard = replace(node, heard_ms=observed_ms)
    match sound:
        case Noise():
            return replace(heard, noise=sound.words)
        case Beat() if sound.incarnation == node.incarnation:
            return _see(heard, sound, observed_ms, window_ms)
        case Beat() if sound.incarnation == node.rival:
            return _hear_rival(heard, sound, observed_ms)
        case Beat():
            words = f"heartbeats of agent start {sound.incarnation}, which has not announced itself"
            return replace(heard, noise=words, lease_ms=max(node.lease_ms, sound.lease_ms))
        case _:
            assert_never(sound)


def _see(node: Node, beat: Beat, observed_ms: int, window_ms: int) -> Node:
    seen = replace(
        node,
        seen_ms=observed_ms,
        counter=beat.counter,
        lease_ms=beat.lease_ms,
        attempts=beat.attempts,
        noise="",
    )
    return note_skew(seen, beat.skew_ms, observed_ms, window_ms)


def _hear_rival(node: Node, beat: Beat, observed_ms: int) -> Node:
    """One late heartbeat of the agent start before is a straggler; a second, newer one says that it still runs."""
    alive = node.rival_counter is not None and beat.counter > node.rival_counter
    return replace(
        node,
        rival_counter=max(beat.counter, node.rival_counter or 0),
        rival_ms=observed_ms if alive else node.rival_ms,
        lease_ms=max(node.lease_ms, beat.lease_ms),
    )


def judge(node: Node, clock: Clock, timings: Timings, skew: SkewRules = SKEW) -> Move | None:
    """The transition that is due for `node`, or None. Whether it is heard comes first, the rest at the next tick."""
    if node.standing is Standing.RETIRED:
        return None
    return _liveness(node, clock, timings) or _leaving(node) or _health(node, clock, skew)


def _leaving(node: Node) -> Move | None:
    """A node that is to retire does so once nothing runs there; on a lost one nothing does."""
    busy = node.attempts != NOTHING and node.phase is not NodePhase.LOST
    if node.standing is not Standing.RETIRING or busy or node.promised or node.requeue_held:
        return None
    retired = replace(node, standing=Standing.RETIRED)
    return Move(retired, NodeEvent.GRADED, Cause.RETIRED, f"retired, nothing runs there: {node.order}")


def _health(node: Node, clock: Clock, skew: SkewRules) -> Move | None:
    """What this tick's heartbeat says beside being there."""
    if node.seen_ms != clock.observed_ms or node.phase is not NodePhase.READY:
        return None
    if node.stage is Stage.CHECKED:
        return retell(node, replace(node, stage=Stage.READY), Cause.CHECKED, "its checks passed, and it is heard")
    return judge_skew(node, clock.observed_ms, skew)


def _liveness(node: Node, clock: Clock, timings: Timings) -> Move | None:
    silent_ms = clock.observed_ms - max(node.heard_ms, clock.floor_ms)
    limit_ms = timings.lost_after_ms(node.lease_ms)
    if node.phase is not NodePhase.LOST and silent_ms >= limit_ms:
        words = f"nothing heard for {_s(silent_ms)} s of observed time (lost after {_s(limit_ms)} s)"
        lost = replace(node, phase=NodePhase.LOST, lost_ms=clock.observed_ms)
        return Move(lost, NodeEvent.LOST, Cause.SILENT, words)
    if node.phase is NodePhase.READY:
        return _suspect(node, clock, timings)
    if _well(node, clock, timings):
        words = "its heartbeats are back"
        back = replace(node, phase=NodePhase.READY, lost_ms=None, requeue_held=False)
        return Move(back, NodeEvent.RETURNED, Cause.HEARD, words)
    return None


def _suspect(node: Node, clock: Clock, timings: Timings) -> Move | None:
    suspect = replace(node, phase=NodePhase.SUSPECT)
    if _contested(node, clock, timings):
        words = (
            f"two agents claim the name {node.name}: start {node.rival} still sends heartbeats after start "
            f"{node.incarnation} announced itself; stop one of them or give it another node name"
        )
        return Move(suspect, NodeEvent.SUSPECT, Cause.CLAIMED_TWICE, words)
    missing_ms = clock.observed_ms - max(node.seen_ms, clock.floor_ms)
    if missing_ms < timings.suspect_ms:
        return None
    limit = f"for {_s(missing_ms)} s of observed time (suspect after {_s(timings.suspect_ms)} s)"
    if node.noise:
        return Move(suspect, NodeEvent.SUSPECT, Cause.UNCOUNTED, f"no valid heartbeat {limit}: {node.noise}")
    return Move(suspect, NodeEvent.SUSPECT, Cause.SILENT, f"no heartbeat {limit}")


def _well(node: Node, clock: Clock, timings: Timings) -> bool:
    """Whether a heartbeat has truly been read of late; the floor says nothing in favour of a node that is not ready."""
    fresh = clock.observed_ms - node.seen_ms < timings.suspect_ms
    return fresh and not _contested(node, clock, timings) and node.superseded_by is None


def _contested(node: Node, clock: Clock, timings: Timings) -> bool:
    return node.rival_ms is not None and clock.observed_ms - node.rival_ms < timings.suspect_ms


def _s(ms: int) -> str:
    return f"{ms / 1000:g}"


def judge_tick(
    nodes: Iterable[Node],
    sounds: Iterable[Sound],
    *,
    clock: Clock,
    timings: Timings,
    census: Census,
    breaker_open: bool,
    rules: BreakerRules,
    skew: SkewRules = SKEW,
    faults: FaultJudge | None = None,
) -> Iterator[TickEffect]:
    """The effects of one tick.

    `nodes` holds at least every node that `sounds` speak of and every node that is suspect or has been silent for
    `suspect_ms`; `census` counts the fleet before this tick. Sounds of unknown nodes have no effect. Without `faults`
    no breaker watches over quarantines.
    """
    known = {node.name: node for node in nodes}
    heard: set[str] = set()
    for sound in sounds:
        if sound.node in known:
            known[sound.node] = hear(known[sound.node], sound, clock.observed_ms, skew.window_ms)
            heard.add(sound.node)
    yield from (Sight(known[name]) for name in sorted(heard))
    due = [(node, move) for _, node in sorted(known.items()) if (move := judge(node, clock, timings, skew)) is not None]
    health = [pair for pair in due if pair[1].cause is Cause.CLOCK_SKEW]
    moves = [pair for pair in due if pair[1].cause is not Cause.CLOCK_SKEW]
    yield from judge_breaker(moves, census, observed_ms=clock.observed_ms, breaker_open=breaker_open, rules=rules)
    if faults is None:
        yield from (move for _, move in health)
    else:
        yield from faults(health)


def fault_judge(census: FaultCensus, *, observed_ms: int, breaker_open: bool, rules: BreakerRules) -> FaultJudge:
    """The breaker of quarantines as it stands before a tick."""
    return partial(throttle, census=census, observed_ms=observed_ms, breaker_open=breaker_open, rules=rules)
