"""A world in miniature around the core: a hub that restarts, agents with leases, an inventory killed and frozen.

True time is an integer of milliseconds that only this world knows. The hub keeps the newest message of each subject
until a newer one comes or its stream goes away.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from contracts.nodes import NodePhase
from services.inventory.core.breaker import counted
from services.inventory.core.clock import advance, start_sequence
from services.inventory.core.liveness import judge_tick
from services.inventory.core.model import (
    Beat,
    BreakerRules,
    Census,
    Clock,
    CloseBreaker,
    Move,
    Node,
    NodeEvent,
    Noise,
    OpenBreaker,
    OpenFaultBreaker,
    Sight,
    Sound,
    Tick,
    TickEffect,
    Timings,
)
from tests.unit.inventory.builders import T0, incarnation

TIMINGS = Timings(suspect_ms=6, lease_ms=20, lost_ms=21, gap_ms=4)
RULES = BreakerRules(share=0.5, window_ms=20)
NAMES = ("a", "b", "c")


@dataclass
class Agent:
    """Runs attempts while its lease stands: `lease_ms` from before the sending of an acknowledged message.

    A lease that has ended is not renewed: its attempts are dead. New ones need a node that inventory calls ready.
    """

    deadline_ms: int = 0
    counter: int = 0

    def renew(self, sent_ms: int, acked_ms: int, *, ready: bool) -> None:
        if acked_ms <= self.deadline_ms or ready:
            self.deadline_ms = max(self.deadline_ms, sent_ms + TIMINGS.lease_ms)


@dataclass
class Hub:
    """The heartbeat stream: numbered messages, one for each node; gone after a restart."""

    up: bool = True
    life: int = 0
    sequence: int = 0
    step_ms: int = 0
    kept: dict[str, tuple[int, Sound]] = field(default_factory=dict[str, tuple[int, Sound]])

    def store(self, sound: Sound | None) -> None:
        """Keep a heartbeat, or (None) number a tick."""
        self.sequence += 1
        if sound is not None:
            self.kept[sound.node] = (self.sequence, sound)

    def restart(self) -> None:
        self.up, self.life, self.sequence = True, self.life + 1, 0
        self.kept.clear()

    def read(self, start: int) -> list[Sound]:
        return [sound for sequence, sound in self.kept.values() if sequence >= start]


@dataclass
class World:
    """All of it, with the losses told so far."""

    now_ms: int = 0
    hub: Hub = field(default_factory=Hub)
    agents: dict[str, Agent] = field(default_factory=lambda: {name: Agent() for name in NAMES})
    nodes: dict[str, Node] = field(
        default_factory=lambda: {
            name: Node(name, NodePhase.READY, incarnation(1), T0, T0, seen_ms=0, heard_ms=0) for name in NAMES
        }
    )
    clock: Clock = field(default_factory=lambda: Clock("", 0, T0, observed_ms=0, floor_ms=0))
    previous: Tick | None = None
    breaker_open: bool = False
    losses: list[str] = field(default_factory=list[str])

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def send(self, name: str, *, delay_ms: int = 0, valid: bool = True, acked: bool = True) -> None:
        """`name` sends a heartbeat, stored after `delay_ms` if the hub is there; `acked` says if the answer arrives."""
        agent, sent_ms = self.agents[name], self.now_ms
        agent.counter += 1
        self.wait(delay_ms)
        if not self.hub.up:
            return
        beat = Beat(name, incarnation(1), agent.counter, TIMINGS.lease_ms, skew_ms=0, attempts="[]")
        self.hub.store(beat if valid else Noise(name, "garbled"))
        if acked:
            agent.renew(sent_ms, self.now_ms, ready=self.nodes[name].phase is NodePhase.READY)

    def tick(self, *, out_ms: int = 0, back_ms: int = 0, during: tuple[str, ...] = (), commit: bool = True) -> None:
        """One round of inventory; `during` are agents that send after the tick is stored and before it is read."""
        sent_ms = self.now_ms
        self.wait(out_ms)
        if not self.hub.up:
            return
        self.hub.store(None)
        stored_at = T0 + timedelta(milliseconds=self.now_ms + self.hub.step_ms)
        self.wait(back_ms)
        acked_ms = self.now_ms
        for name in during:
            self.send(name, delay_ms=1)
        tick = Tick(str(self.hub.life), self.hub.sequence, stored_at, sent_ms, acked_ms)
        sounds = self.hub.read(start_sequence(self.clock, tick.stream))
        if commit:
            self._judge(tick, sounds)

    def restart_inventory(self) -> None:
        self.previous = None

    def _judge(self, tick: Tick, sounds: list[Sound]) -> None:
        clock = advance(self.clock, tick, self.previous, TIMINGS.gap_ms)
        effects = judge_tick(
            self.nodes.values(),
            sounds,
            clock=clock,
            timings=TIMINGS,
            census=self._census(clock.observed_ms),
            breaker_open=self.breaker_open,
            rules=RULES,
        )
        for effect in list(effects):
            self._apply(effect)
        self.clock, self.previous = clock, tick

    def _apply(self, effect: TickEffect) -> None:
        match effect:
            case Sight():
                self.nodes[effect.node.name] = effect.node
            case Move():
                self.nodes[effect.node.name] = effect.node
                if effect.event is NodeEvent.LOST:
                    self._lose(effect.node.name)
            case OpenBreaker():
                self.breaker_open = True
            case OpenFaultBreaker():
                raise AssertionError(effect.reason)
            case CloseBreaker():
                self.breaker_open = False
                self.nodes = {name: replace(node, requeue_held=False) for name, node in self.nodes.items()}

    def _lose(self, name: str) -> None:
        """The promise: a node is lost only after the lease of its attempts has ended."""
        deadline_ms = self.agents[name].deadline_ms
        assert deadline_ms <= self.now_ms, f"{name} lost at {self.now_ms} with a lease to {deadline_ms}"
        self.losses.append(name)

    def _census(self, observed_ms: int) -> Census:
        phases = [node.phase for node in self.nodes.values() if counted(node, observed_ms - RULES.window_ms)]
        return Census(*(phases.count(phase) for phase in (NodePhase.READY, NodePhase.SUSPECT, NodePhase.LOST)))
