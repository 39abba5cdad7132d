"""Node and pod files of the openb format: a fleet and the tasks that arrive at it.

Nodes have the columns sn, cpu_milli, memory_mib, gpu, model; only those with cards are kept. Pods have name, cpu_milli,
memory_mib, num_gpu, gpu_milli, and may have gpu_spec (models, with `|` between them); what else there is stays unread.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from contracts.base import Tier
from libs.cli.errors import FileError
from services.scheduler.core.arrays import CARD, NEVER, TIERS, Demand, Fleet

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MODELS_COLUMN = "gpu_spec"
MIB = 1024**2
MILLI = CARD // 1000
MAX_CARDS = 1024
TIER = Tier.CENTRAL
SLOTS = 1_000_000

Row = dict[str, str]


@dataclass(frozen=True)
class Node:
    """One row of the node file."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str


def read_nodes(file: Path) -> tuple[Node, ...]:
    """Nodes with cards, in order of name. Raises FileError that names file, line and field of a broken row."""
    nodes: dict[str, Node] = {}
    for where, row in _rows(file, NODE_COLUMNS):
        name = row["sn"].strip()
        if not name or name in nodes:
            _broken(where, "sn", row["sn"], "each node needs a name of its own")
        cards = _number(where, row, "gpu", MAX_CARDS)
        model = row["model"].strip().lower()
        if cards and not model:
            _broken(where, "model", row["model"], "a node with cards says of which model they are")
        nodes[name] = Node(name, _number(where, row, "cpu_milli"), _number(where, row, "memory_mib"), cards, model)
    kept = tuple(sorted((node for node in nodes.values() if node.cards), key=lambda node: node.name))
    if not kept:
        msg = f"{file} has no node with cards: name a node list of the openb format"
        raise FileError(msg)
    return kept


def read_tasks(file: Path) -> tuple[Demand, ...]:
    """Tasks in order of the file; equal ones are one object. Raises FileError as `read_nodes` does."""
    known: dict[Demand, Demand] = {}
    tasks = [known.setdefault(task, task) for task in (_task(where, row) for where, row in _rows(file, POD_COLUMNS))]
    if not any(task.cards for task in tasks):
        msg = f"{file} has no task that asks cards: name a pod list of the openb format"
        raise FileError(msg)
    return tuple(tasks)


def _task(where: str, row: Row) -> Demand:
    cards, milli = _number(where, row, "num_gpu", MAX_CARDS), _number(where, row, "gpu_milli")
    if cards == 0 and milli:
        _broken(where, "gpu_milli", row["gpu_milli"], "a task without cards takes 0 of one")
    if cards == 1 and not 0 < milli <= CARD // MILLI:
        _broken(where, "gpu_milli", row["gpu_milli"], "a task takes 1 to 1000 thousandths of its one card")
    if cards > 1 and milli != CARD // MILLI:
        _broken(where, "gpu_milli", row["gpu_milli"], "a task with several cards takes 1000, all of each")
    models = (row.get(MODELS_COLUMN) or "").lower().split("|")
    return Demand(
        tiers=(TIER,),
        cards=cards,
        share=milli * MILLI if cards else CARD,
        models=tuple(sorted({model.strip() for model in models} - {""})) if cards else (),
        cpu_milli=_number(where, row, "cpu_milli"),
        memory_bytes=_number(where, row, "memory_mib") * MIB,
    )


def _rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                msg = f"{file}, line 1: no column {', '.join(missing)}: the openb format has {', '.join(columns)}"
                raise FileError(msg)
            for row in reader:
                where = f"{file}, line {reader.line_num}"
                absent = [column for column in columns if not isinstance(row.get(column), str)]
                if absent:
                    _broken(where, absent[0], None, f"a row has {', '.join(columns)}")
                if None in row:
                    msg = f"{where}: the row has more fields than the first line names: mend it, or name them there"
                    raise FileError(msg)
                yield where, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        msg = f"{file} cannot be read ({cause}): name a CSV file of the openb format"
        raise FileError(msg) from None


def _number(where: str, row: Row, column: str, most: int = 10**12) -> int:
    text = row[column].strip()
    if not text.isascii() or not text.isdigit() or len(text) > len(str(most)) or int(text) > most:
        _broken(where, column, row[column], f"it must be a whole number from 0 to {most}")
    return int(text)


def _broken(where: str, column: str, value: str | None, remedy: str) -> NoReturn:
    told = "is missing" if value is None else f"is {value!r}"
    msg = f"{where}: field {column} {told}: {remedy}"
    raise FileError(msg)


def fleet_of(nodes: Sequence[Node]) -> Fleet:
    """An empty fleet of these nodes, in one zone, rack and tier."""
    count = len(nodes)
    cards = np.array([node.cards for node in nodes], dtype=np.int64)
    models = tuple(sorted({node.model for node in nodes}))
    cpu = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
    memory = np.array([node.memory_mib * MIB for node in nodes], dtype=np.int64)
    zero, many = np.zeros(count, dtype=np.int64), np.full(count, NEVER, dtype=np.int64)
    total = int(cards.sum())
    card_index = np.arange(total) - np.repeat(np.cumsum(cards) - cards, cards)
    return Fleet(
        nodes=tuple(node.name for node in nodes),
        versions=zero + 1,
        tier=zero + TIERS.index(TIER),
        pool=zero - 1,
        zone=zero,
        rack=zero,
        ready=np.ones(count, dtype=np.bool_),
        scarce=np.zeros(count, dtype=np.bool_),
        cpu_milli=cpu,
        memory_bytes=memory,
        free_cpu_milli=cpu.copy(),
        free_memory_bytes=memory.copy(),
        free_budget=many,
        free_link_mbps=many.copy(),
        node_slots=SLOTS,
        free_slots=zero + SLOTS,
        pools=(),
        zones=("zone",),
        racks=("rack",),
        models=models,
        card_node=np.repeat(np.arange(count), cards),
        card_index=card_index,
        card_model=np.repeat(np.array([models.index(node.model) for node in nodes], dtype=np.int64), cards),
        card_memory_bytes=np.zeros(total, dtype=np.int64),
        card_link=np.zeros(total, dtype=np.int64),
        card_free=np.full(total, CARD, dtype=np.int64),
    )


def arrivals(tasks: Sequence[Demand], capacity: int, seed: int, percent: int) -> list[Demand]:
    """All tasks in an order of chance, then more of them drawn, until `percent` of `capacity` (millionths) arrived."""
    draw = np.random.default_rng(seed)
    order: list[int] = draw.permutation(len(tasks)).tolist()
    wanted, came = capacity * percent // 100, 0
    taken: list[Demand] = []
    while came < wanted:
        task = tasks[order[len(taken)] if len(taken) < len(order) else int(draw.integers(len(tasks)))]
        taken.append(task)
        came += task.cards * task.share
    return taken
