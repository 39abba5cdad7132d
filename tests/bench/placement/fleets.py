"""Fleets, tasks and queues of any size, from files of the openb format or made up after their pattern."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from contracts.base import Tier
from deploy.replay.openb import MIB, Node, fleet_of, read_nodes, read_tasks
from libs.cli.errors import FileError
from services.scheduler.core.arrays import CARD, NEVER, Demand, Fleet, Ints, Queue, Running, Tenants
from tests.data import VARIABLE, data_home

NODES_FILE, PODS_FILE = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
TENANTS = 50
CLASSES = 3
VARIANTS, VARIANT_MILLI = 64, 10
HOUR_US = 3_600_000_000
# Of 100 cards so many are full, and so many whole; the rest have a part free: 90 % of the capacity is taken.
FULL, WHOLE = 85, 5


@dataclass(frozen=True)
class Load:
    """What a case is measured on."""

    nodes: tuple[Node, ...]
    tasks: tuple[Demand, ...]


def load(nodes: Path | None, pods: Path | None) -> Load:
    """Of files where they are named or the public data is at hand; made up otherwise."""
    folder = data_home() / "openb"
    if nodes is None and pods is None and not folder.is_dir():
        return made_up()
    if (nodes is None or pods is None) and not folder.is_dir():
        given, wanted = ("--pods", "--nodes") if nodes is None else ("--nodes", "--pods")
        msg = f"{given} is given without {wanted}, and {folder} is not there: give both, or set {VARIABLE}"
        raise FileError(msg)
    return Load(read_nodes(nodes or folder / NODES_FILE), read_tasks(pods or folder / PODS_FILE))


def made_up() -> Load:
    """Nodes with two, four and eight cards; tasks with none, a part, one and eight, of many shapes."""
    draw = np.random.default_rng(1)
    sizes = {"t4": (104_000, 524_288, 2), "g2": (96_000, 393_216, 8), "v100": (32_000, 262_144, 4)}
    nodes = [
        Node(f"node-{number:04}", *sizes[model], model)
        for number, model in enumerate(draw.choice(list(sizes), 200).tolist())
    ]
    kinds = draw.choice(5, 2000, p=[0.13, 0.38, 0.45, 0.03, 0.01]).tolist()
    cpus = (draw.integers(1, 17, 2000) * 1000).tolist()
    shares = (draw.integers(1, 20, 2000) * (CARD // 20)).tolist()
    tasks = [_task(kind, cpu, share) for kind, cpu, share in zip(kinds, cpus, shares, strict=True)]
    return Load(tuple(nodes), tuple(tasks))


def _task(kind: int, cpu: int, share: int) -> Demand:
    cards = (0, 1, 1, 2, 8)[kind]
    return Demand(
        (Tier.CENTRAL,),
        cards=cards,
        share=share if kind == 1 else CARD,
        cpu_milli=cpu * max(1, cards),
        memory_bytes=cpu * 2 * MIB,
    )


def scaled(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """As many nodes of the same pattern."""
    return tuple(replace(nodes[index % len(nodes)], name=f"node-{index:06}") for index in range(count))


def taken(nodes: Sequence[Node], seed: int) -> Fleet:
    """A fleet whose cards are nine tenths taken, and its processors and memory with them."""
    fleet, draw = fleet_of(nodes), np.random.default_rng(seed)
    count = len(fleet.card_node)
    chance = draw.integers(0, 100, count)
    part = draw.integers(1, 20, count) * (CARD // 20)
    free = np.where(chance < FULL, 0, np.where(chance < FULL + WHOLE, CARD, part))
    idle = np.bincount(fleet.card_node, weights=free) / np.bincount(fleet.card_node) / CARD
    left = np.clip(idle * draw.uniform(0.6, 1.6, len(idle)), 0, 1)
    return replace(
        fleet,
        card_free=free,
        free_cpu_milli=(fleet.cpu_milli * left).astype(np.int64),
        free_memory_bytes=(fleet.memory_bytes * left).astype(np.int64),
    )


def running_on(fleet: Fleet, seed: int) -> Running:
    """One attempt on each card that is not wholly free, of all tenants and classes."""
    draw, used = np.random.default_rng(seed), CARD - fleet.card_free
    cards = np.flatnonzero(used)
    shares, shape = np.unique(used[cards], return_inverse=True)
    count, each = len(cards), np.arange(len(cards), dtype=np.int64)
    ends = draw.integers(1, 48, count) * HOUR_US
    return Running(
        job_ids=tuple(f"run-{number:06}" for number in range(count)),
        tenant=draw.integers(0, TENANTS, count),
        rank=draw.integers(0, CLASSES, count),
        placed_us=each * 0,
        ends_us=ends,
        saved_us=each * 0,
        preemptible=draw.random(count) < 1 / CLASSES,
        stopping=np.zeros(count, dtype=np.bool_),
        shape=shape.reshape(-1).astype(np.int64),
        shapes=tuple(Demand((Tier.CENTRAL,), cards=1, share=share) for share in shares.tolist()),
        member_attempt=each,
        member_node=fleet.card_node[cards],
        held_member=each,
        held_card=cards.astype(np.int64),
    )


def waiting(tasks: Sequence[Demand], count: int, seed: int) -> Queue:
    """Jobs drawn from the tasks for all tenants; processors vary a little, so that there are many shapes."""
    draw = np.random.default_rng(seed)
    known: dict[Demand, int] = {}
    more: list[int] = (draw.integers(0, VARIANTS, count) * VARIANT_MILLI).tolist()
    which: list[int] = draw.integers(0, len(tasks), count).tolist()
    shape = [
        known.setdefault(replace(tasks[index], cpu_milli=tasks[index].cpu_milli + extra), len(known))
        for index, extra in zip(which, more, strict=True)
    ]
    zero: Ints = np.zeros(count, dtype=np.int64)
    return Queue(
        job_ids=tuple(f"job-{number:06}" for number in range(count)),
        versions=zero + 1,
        tenant=draw.integers(0, TENANTS, count),
        rank=draw.integers(0, CLASSES, count),
        submitted_us=np.arange(count, dtype=np.int64),
        longest_us=zero + 12 * HOUR_US,
        shape=np.array(shape, dtype=np.int64),
        gate=zero - 1,
        damaged=np.zeros(count, dtype=np.bool_),
        shapes=tuple(known),
    )


def tenants_of(fleet: Fleet, running: Running) -> Tenants:
    """All of them with an equal guarantee; each may borrow whatever is free."""
    cards = len(fleet.card_node) * CARD
    held = CARD - fleet.card_free[running.held_card]
    used = np.bincount(running.tenant[running.member_attempt[running.held_member]], weights=held, minlength=TENANTS)
    zero = np.zeros(TENANTS, dtype=np.int64)
    return Tenants(
        names=tuple(f"tenant-{number:02}" for number in range(TENANTS)),
        known=np.ones(TENANTS, dtype=np.bool_),
        guarantee=zero + cards // TENANTS,
        limit=zero + cards,
        quota_jobs=zero + NEVER,
        used=used.astype(np.int64),
        used_jobs=np.bincount(running.tenant, minlength=TENANTS).astype(np.int64),
        weight=np.ones(TENANTS),
        usage=np.zeros(TENANTS),
        cohort=zero - 1,
        pools=np.zeros((TENANTS, 0), dtype=np.bool_),
    )
