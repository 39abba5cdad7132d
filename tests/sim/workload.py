"""What a seed makes: nodes, tenants, jobs with what their tasks do, requests about them, and planned trouble."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.base import Priority, Tier
from contracts.jobs import JobSpec
from contracts.nodes import Card, CardSource, NodeFacts
from services.scheduler.core.quota import Quotas, Tenant
from tests.sim.loop import SECOND
from tests.sim.machine import Work
from tests.sim.names import job_id

GB = 1024**3
SKEW_MS = 1500  # a node whose clock is further off is quarantined
FOREVER = 1_000_000_000


@dataclass(frozen=True)
class Ask:
    """Something that a tenant asks at a time: `what` is a subject's name."""

    at_ms: int
    what: str
    number: int
    spec: JobSpec | None = None


@dataclass(frozen=True)
class Trouble:
    """Something that befalls a node, or a service, at a time, for a time."""

    at_ms: int
    kind: str
    whom: str
    for_ms: int

    @property
    def name(self) -> str:
        """What the story calls it."""
        return f"{self.kind}: {self.whom} at {self.at_ms / SECOND:g} s for {self.for_ms / SECOND:g} s"


@dataclass(frozen=True)
class Scene:
    """All that a seed makes."""

    nodes: tuple[NodeFacts, ...]
    tenants: dict[str, Tenant]
    asks: tuple[Ask, ...]
    works: dict[str, Work]
    troubles: tuple[Trouble, ...]
    skews_ms: dict[str, int]


def small(seed: int, *, jobs: int = 8, nodes: int = 4, storm_ms: int = 600 * SECOND) -> Scene:
    """A small world with much trouble: every kind of job, on few nodes that keep failing."""
    rng = np.random.Generator(np.random.PCG64(seed))
    facts = tuple(_node(number, rng) for number in range(1, nodes + 1))
    asks: list[Ask] = []
    works: dict[str, Work] = {}
    for number in range(1, jobs + 1):
        spec, work = _job(number, rng)
        works[spec.job_id] = work
        asks.extend(_asks(number, spec, work, rng, storm_ms))
    skews = {fact.node: int(rng.integers(-SKEW_MS, SKEW_MS + 1)) for fact in facts if rng.random() < 0.5}
    return Scene(facts, tenants(), tuple(asks), works, _troubles(facts, rng, storm_ms), skews)


def tenants() -> dict[str, Tenant]:
    """Two tenants that share what there is; one may ask more than the other."""
    wide = Quotas(gpu_ms_month=10**13, cards=64, concurrent_jobs=32, top_priority=Priority.ONLINE, guarantee=3)
    tight = Quotas(gpu_ms_month=6_000_000, cards=4, concurrent_jobs=3, top_priority=Priority.NORMAL, guarantee=2)
    return {"acme": Tenant("acme", 1, wide), "globex": Tenant("globex", 1, tight)}


def node(number: int, tier: Tier, cards: int, model: str = "H200") -> NodeFacts:
    """A node with so many cards."""
    name = f"n{number}"
    return NodeFacts(
        node=name,
        tier=tier,
        zone="z1",
        address="127.0.0.1",
        version="1",
        cpu_milli=16_000,
        memory_bytes=64 * GB,
        cards=[
            Card(index=i, uuid=f"{name}-{i}", model=model, memory_bytes=80 * GB, source=CardSource.DECLARED)
            for i in range(cards)
        ],
    )


def _node(number: int, rng: np.random.Generator) -> NodeFacts:
    """The third is remote, for there is work that central nodes do not take."""
    return node(number, Tier.REMOTE if number == 3 else Tier.CENTRAL, int(rng.integers(2, 5)))


def _job(number: int, rng: np.random.Generator) -> tuple[JobSpec, Work]:
    kind = ("training", "training", "training", "fine_tuning", "batch", "inference")[int(rng.integers(6))]
    step_ms, steps = int(rng.integers(200, 1500)), int(rng.integers(20, 120))
    serves, trains = kind == "inference", kind in {"training", "fine_tuning"}
    asked = _resources(rng, serves=serves)
    fields: dict[str, Any] = {
        "job_id": job_id(number),
        "tenant": ("acme", "acme", "globex")[int(rng.integers(3))],
        "name": f"job-{number}",
        "kind": kind,
        "command": ["python"],
        "resources": asked,
        "members": int(rng.choice([1, 1, 2, 4 // asked["cards"]])) if trains else 1,
        "max_runtime_s": None if serves else int(rng.choice([600, 1200, 3600])),
        "retries": int(rng.integers(0, 4)),
        "start_deadline_s": int(rng.choice([30, 120])),
        "stop_grace_s": int(rng.choice([0, 5, 20])),
        "preemptible": bool(rng.random() < 0.6),
    }
    if serves and rng.random() < 0.7:
        fields["on_partition"] = "keep"
    if rng.random() < 0.2:
        fields["priority"] = str(rng.choice(["online", "normal", "batch"]))
    saves = trains and rng.random() < 0.8
    if saves:
        fields["checkpoint"] = {"interval_steps": 5, "keep_last": int(rng.integers(1, 4))}
    work = Work(
        steps=FOREVER if serves else steps,
        step_ms=step_ms,
        save_every=int(rng.integers(3, 15)) if saves else 0,
        fails_at=int(rng.integers(1, steps)) if rng.random() < 0.15 else 0,
        closing_ms=int(rng.integers(100, 8000)),
    )
    return JobSpec.model_validate(fields), work


def _resources(rng: np.random.Generator, *, serves: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"cards": int(rng.choice([1, 1, 2])), "cpu_milli": int(rng.choice([0, 1000, 6000]))}
    if asked["cards"] == 1 and (serves or rng.random() < 0.3):
        asked["share_milli"] = int(rng.choice([250, 400, 500]))
    return asked


def _asks(number: int, spec: JobSpec, work: Work, rng: np.random.Generator, storm_ms: int) -> list[Ask]:
    """A submission, now and then sent twice, and what else is asked of the job."""
    begin_ms = int(rng.integers(0, storm_ms // 2))
    asks = [Ask(begin_ms, "submit", number, spec)]
    if rng.random() < 0.3:
        asks.append(Ask(begin_ms + int(rng.integers(1, 60_000)), "submit", number, spec))
    if work.steps == FOREVER:
        asks.append(Ask(begin_ms + int(rng.integers(storm_ms // 2, storm_ms)), "cancel", number, spec))
    elif rng.random() < 0.15:
        asks.append(Ask(max(0, begin_ms + int(rng.integers(-20_000, 200_000))), "cancel", number, spec))
    if rng.random() < 0.25:
        held_ms = begin_ms + int(rng.integers(-10_000, 60_000))
        asks.append(Ask(max(0, held_ms), "hold", number, spec))
        asks.append(Ask(max(0, held_ms) + int(rng.integers(1000, 120_000)), "release", number, spec))
    return asks


KINDS = ("agent crashes", "agent is stopped", "machine freezes", "machine loses power", "link is cut")
_SERVICES = ("scheduler", "inventory", "checkpoint", "metering")


def _troubles(facts: tuple[NodeFacts, ...], rng: np.random.Generator, storm_ms: int) -> tuple[Trouble, ...]:
    found: list[Trouble] = []
    for fact in facts:
        for _ in range(int(rng.integers(0, 6))):
            kind = KINDS[int(rng.integers(len(KINDS)))]
            found.append(_trouble(kind, fact.node, rng, storm_ms, (1, 4, 20, 70, 100, 150)))
    found.extend(
        _trouble("service is away", _SERVICES[int(rng.integers(4))], rng, storm_ms, (1, 5, 20, 60))
        for _ in range(int(rng.integers(0, 4)))
    )
    if rng.random() < 0.3:
        found.append(_trouble("hub is away", "hub", rng, storm_ms, (2, 10, 45)))
    return tuple(sorted(found, key=lambda one: (one.at_ms, one.name)))


def _trouble(kind: str, whom: str, rng: np.random.Generator, storm_ms: int, lengths_s: tuple[int, ...]) -> Trouble:
    length_s = lengths_s[int(rng.integers(len(lengths_s)))]
    return Trouble(int(rng.integers(5 * SECOND, storm_ms)), kind, whom, length_s * SECOND)
