"""Inventory's shell in memory: announcements, and a tick into the heartbeat stream with the fleet judged after it."""

from dataclasses import dataclass, replace
from functools import partial

from pydantic import TypeAdapter

from contracts.nodes import LiveAttempt, NodeFacts, NodePhase, NodeState
from services.inventory.core.breaker import counted
from services.inventory.core.clock import advance, start_sequence
from services.inventory.core.model import (
    Admit,
    Announcement,
    Beat,
    Census,
    Clock,
    CloseBreaker,
    Holder,
    Move,
    Node,
    NodeEvent,
    OpenBreaker,
    Refuse,
    Sight,
    Tick,
)
from tests.sim.bus import Bus, Mail
from tests.sim.ledger import Service, Tx
from tests.sim.loop import SECOND, T0, at, ms_of
from tests.sim.settings import BREAKER, Cores, Times
from tests.sim.truth import Truth

_ATTEMPTS: TypeAdapter[list[LiveAttempt]] = TypeAdapter(list[LiveAttempt])
CLOCK = "clock"
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Row:
    """A node in the ledger."""

    node: Node
    facts: NodeFacts
    version: int
    reason: str
    since_ms: int


class Heartbeats:
    """The heartbeat stream: the newest message of each node, in memory only."""

    def __init__(self) -> None:
        self.life = 1
        self.sequence = 0
        self.kept: dict[str, tuple[int, Beat]] = {}

    def store(self, beat: Beat | None) -> int:
        """Keep a heartbeat, or number a tick."""
        self.sequence += 1
        if beat is not None:
            self.kept.pop(beat.node, None)
            self.kept[beat.node] = (self.sequence, beat)
        return self.sequence

    def restart(self) -> None:
        """The hub was started anew: what was in memory is gone."""
        self.life, self.sequence = self.life + 1, 0
        self.kept.clear()

    def since(self, start: int) -> list[Beat]:
        """All from sequence `start` on, oldest first."""
        found: list[Beat] = []
        for sequence, beat in reversed(self.kept.values()):
            if sequence < start:
                break
            found.append(beat)
        return found[::-1]


class Inventory(Service):
    """Owns facts and health of nodes."""

    name = "inventory"

    def __init__(self, bus: Bus, truth: Truth, times: Times, cores: Cores) -> None:
        super().__init__(bus, inbox=cores.inbox)
        self.stream = Heartbeats()
        self.rows: dict[str, Row] = {}
        self._truth = truth
        self._times = times
        self._timings = times.timings
        self._cores = cores
        self._clock: dict[str, Clock] = {CLOCK: Clock("", 0, T0, observed_ms=0, floor_ms=0)}
        self._breaker: dict[str, str] = {}
        self._previous: Tick | None = None
        self._sent_ms = 0
        self.on("nodes.announced", self._announced)
        self.loop.after(SECOND, self._send_tick)

    def started(self) -> None:
        """The own clock of the process before is worth nothing."""
        self._previous = None

    # ---- announcements

    def _announced(self, tx: Tx, mail: Mail) -> None:
        said: Announcement = replace(mail.body, stored_at=at(mail.stored_ms))
        row = self.rows.get(said.facts.node)
        effect = self._cores.announce(
            None if row is None else row.node,
            None if row is None else row.facts,
            said,
            holders=self._holders(said),
            observed_ms=self._clock[CLOCK].observed_ms,
        )
        match effect:
            case Admit():
                assert not effect.dispossessed, "cards of this world stay on their nodes"
                self._write(tx, effect.node, effect.facts, effect.event, effect.reason, mail.stored_ms)
            case Refuse(reason):
                self.bus.story.tell(self.loop.now_ms, f"inventory refuses: {reason}", said.facts.node)
            case _:
                return

    def _holders(self, said: Announcement) -> dict[str, Holder]:
        """No card of this world is ever on two nodes."""
        assert said.facts.node
        return {}

    def _write(self, tx: Tx, node: Node, facts: NodeFacts, event: NodeEvent, reason: str, at_ms: int) -> None:
        old = self.rows.get(node.name)
        version = 1 if old is None else old.version + 1
        same = old is not None and (old.node.phase, old.node.incarnation) == (node.phase, node.incarnation)
        since_ms = old.since_ms if same and old is not None else at_ms
        row = Row(node, facts, version, reason, since_ms)
        tx.put(self.rows, node.name, row)
        tx.then(partial(self._truth.node_told, node.name, version, node.phase))
        tx.then(partial(self._tell, f"inventory: node {node.name} {event} ({reason})", node.name))
        self.emit(tx, f"nodes.{event}", _state(row), key=node.name, subject=node.name, sequence=version)

    def _tell(self, text: str, node: str) -> None:
        self.bus.story.tell(self.loop.now_ms, text, node)

    # ---- the watch

    def _send_tick(self) -> None:
        """A tick sets out; it is stored, acknowledged and read a little later, or much later."""
        self.loop.after(int(self._times.tick_s * SECOND), self._send_tick)
        if self._away_until is not None or not self.bus.up:
            self._previous = None
            return
        self._sent_ms = self.loop.now_ms
        about = f"round of inventory at {self.loop.now_ms}"
        self.loop.after(1, self._store_tick, about)

    def _store_tick(self, about: str) -> None:
        if not self.bus.up or self._away_until is not None:
            return
        sequence, stored_ms = self.stream.store(None), self.loop.now_ms
        tick = Tick(str(self.stream.life), sequence, at(stored_ms), self._sent_ms, stored_ms + 1)
        pause_ms = 1
        if self.bus.faults.hits("slow", self.bus.faults.rates.drop, about):
            pause_ms = self.bus.faults.amount(f"slow {about}", 500, 20 * SECOND)
        self.loop.after(pause_ms, self._read, tick, about)

    def _read(self, tick: Tick, about: str) -> None:
        """Read the stream to its end and judge; a round that fails leaves no trace."""
        clock = self._clock[CLOCK]
        stale = tick.stream != str(self.stream.life)
        overtaken = clock.stream == tick.stream and clock.read_sequence >= tick.read_sequence
        if not self.bus.up or self._away_until is not None or stale or overtaken:
            self._previous = None
            return
        beats = self.stream.since(start_sequence(clock, tick.stream))
        tick = replace(tick, read_sequence=self.stream.sequence)
        after = advance(clock, tick, self._previous, self._timings.gap_ms)
        if self.bus.faults.hits("rolled back", self.bus.faults.rates.rollback, about):
            self._previous = None
            return
        with self.transaction() as tx:
            self._judge(tx, after, beats)
            tx.put(self._clock, CLOCK, after)
        self._previous = tick

    def _judge(self, tx: Tx, clock: Clock, beats: list[Beat]) -> None:
        heard = {beat.node for beat in beats}
        quiet_ms = clock.observed_ms - self._timings.suspect_ms
        nodes = [row.node for name, row in self.rows.items() if name in heard or _to_judge(row.node, quiet_ms)]
        effects = self._cores.judge_tick(
            nodes,
            beats,
            clock=clock,
            timings=self._timings,
            census=self._census(clock.observed_ms - BREAKER.window_ms),
            breaker_open=OPEN in self._breaker,
            rules=BREAKER,
        )
        for effect in list(effects):
            self._run(tx, effect, ms_of(clock.tick_at))

    def _run(self, tx: Tx, effect: Sight | Move | OpenBreaker | CloseBreaker, at_ms: int) -> None:
        match effect:
            case Sight(node):
                tx.put(self.rows, node.name, replace(self.rows[node.name], node=node))
            case Move(node, event, _, reason):
                if event is NodeEvent.LOST:
                    tx.then(partial(self._truth.node_lost, node.name, held=node.requeue_held))
                self._write(tx, node, self.rows[node.name].facts, event, reason, at_ms)
            case OpenBreaker(reason):
                tx.put(self._breaker, OPEN, reason)
                self.bus.story.tell(self.loop.now_ms, f"inventory: the breaker opens ({reason})", *sorted(self.rows))
            case CloseBreaker(reason):
                self._close(tx, reason, at_ms)

    def _close(self, tx: Tx, reason: str, at_ms: int) -> None:
        """Tell the nodes that are still lost anew, without the hold."""
        tx.drop(self._breaker, OPEN)
        for name in sorted(self.rows):
            row = self.rows[name]
            if row.node.phase is NodePhase.LOST and row.node.requeue_held:
                freed = replace(row.node, requeue_held=False)
                self._write(tx, freed, row.facts, NodeEvent.LOST, f"requeueing released: {reason}", at_ms)

    def _census(self, since_ms: int) -> Census:
        phases = [row.node.phase for row in self.rows.values() if counted(row.node, since_ms)]
        return Census(*(phases.count(phase) for phase in (NodePhase.READY, NodePhase.SUSPECT, NodePhase.LOST)))


def _to_judge(node: Node, quiet_ms: int) -> bool:
    return node.phase is NodePhase.SUSPECT or (node.phase is NodePhase.READY and node.seen_ms <= quiet_ms)


def _state(row: Row) -> NodeState:
    node = row.node
    return NodeState(
        node=node.name,
        version=row.version,
        state=node.phase,
        facts=row.facts,
        incarnation=node.incarnation,
        attempts=_ATTEMPTS.validate_json(node.attempts),
        reason=row.reason,
        requeue_held=node.requeue_held,
        since=at(row.since_ms),
    )
