"""Fleets as files: nodes written down as CSV or JSON, read with the line and field of every mistake, and written.

Three forms are read. CSV with the columns of `COLUMNS`, a dotted one for a field within a field; CSV in the form of the
openb node list (`sn,cpu_milli,memory_mib,gpu,model`); and JSON, `{"nodes": [...]}` of declared nodes.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from contracts.base import NAME_PATTERN
from contracts.fleet import DeclaredNode
from libs.cli.errors import FileError
from libs.kit import schema

MIB = 1024 * 1024
OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
LINK = ("kind", "nominal_mbps", "effective_mbps", "ceiling_mbps", "charge")
COLUMNS = (
    "node",
    "tier",
    "zone",
    "rack",
    "cpu_milli",
    "memory_bytes",
    "cards",
    "card_model",
    "card_memory_bytes",
    "generation",
    *(f"card_link.{name}" for name in LINK),
    *(f"node_link.{name}" for name in LINK),
    "link_mbps",
    "cost.currency",
    "cost.power_micro",
    "cost.depreciation_micro",
    "power_limit_w",
    "heat_limit_w",
)
SEEN = ("state", "grade", "node_class", "cards_promised_milli", "utilisation_pct", "idle_since")
REQUIRED = ("node", "cpu_milli", "memory_bytes", "cards")
MAX_NODES = 100_000
MAX_TOLD = 50


@dataclass(frozen=True)
class Row:
    """One node of a file: where it stands, how its body is read, and what its number of cards is called there."""

    where: str
    body: Callable[[], Mapping[str, Any]]
    cards: str = "cards"


def read(path: Path, *, without_cards: bool = False) -> list[DeclaredNode]:
    """The nodes of a file; without cards only where that is wanted. FileError names line and field of each mistake."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise FileError(msg) from None
    rows = _rows(path, text)
    if not rows:
        msg = f"{path} holds no node: write at least one"
        raise FileError(msg)
    if len(rows) > MAX_NODES:
        msg = f"{path} holds {len(rows)} nodes, the most is {MAX_NODES}: divide it"
        raise FileError(msg)
    return _nodes(path, rows, without_cards=without_cards)


def _nodes(path: Path, rows: Sequence[Row], *, without_cards: bool) -> list[DeclaredNode]:
    nodes: dict[str, tuple[str, DeclaredNode]] = {}
    mistakes: list[str] = []
    for row in rows:
        where = row.where
        try:
            node = _node(path, where, row.body())
            _check_cards(path, row, node, without_cards=without_cards)
        except FileError as error:
            mistakes.append(str(error))
            continue
        first, _ = nodes.setdefault(node.node, (where, node))
        if first != where:
            mistakes.append(f"{path}, {where}, field node is {node.node!r}: {first} has it already; name each once")
    if mistakes:
        more = [f"and {len(mistakes) - MAX_TOLD} more mistakes"] if len(mistakes) > MAX_TOLD else []
        raise FileError("\n".join([*mistakes[:MAX_TOLD], *more]))
    return [node for _, node in nodes.values()]


def _rows(path: Path, text: str) -> list[Row]:
    if not text.strip():
        return []
    return _json_rows(path, text) if text.lstrip().startswith(("{", "[")) else _csv_rows(path, text)


def _check_cards(path: Path, row: Row, node: DeclaredNode, *, without_cards: bool) -> None:
    if node.cards == 0 and (node.card_model is not None or not without_cards):
        remedy = "leave the model out" if without_cards else "leave the row out, or give --without-cards"
        msg = f"{path}, {row.where}, field {row.cards} is 0: node {node.node} has nothing to lease; {remedy}"
        raise FileError(msg)


def _node(path: Path, where: str, row: Mapping[str, Any]) -> DeclaredNode:
    try:
        return DeclaredNode.model_validate(_folded(row))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, wanted = schema.dotted(first["loc"]), schema.at(DeclaredNode, first["loc"])
        if first["type"] == "missing":
            said = f"is missing: state {schema.expected(wanted)}"
        else:
            said = schema.mistaken(first["input"], wanted)
        msg = f"{path}, {where}, field {name} {said}"
        raise FileError(msg) from None


def _folded(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body with its currency as the contracts write it: tables show it in capitals."""
    cost = row.get("cost")
    if not isinstance(cost, dict):
        return row
    folded = {
        name: value.lower() if name == "currency" and isinstance(value, str) else value
        for name, value in cast("dict[str, object]", cost).items()
    }
    return {**row, "cost": folded}


# ---- CSV -------------------------------------------------------------------------------------------------------------


def _csv_rows(path: Path, text: str) -> list[Row]:
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[Row] = []
    try:
        header = [name.strip() for name in next(reader, list[str]())]
        openb = tuple(header) == OPENB
        if not openb:
            _check_header(path, header)
        for cells in reader:
            where = f"line {reader.line_num}"
            if cells:
                body = partial(_cells, path, where, header, cells)
                rows.append(Row(where, body, "gpu" if openb else "cards"))
    except csv.Error as error:
        msg = f"{path}, line {reader.line_num}: {error}"
        raise FileError(msg) from None
    return rows


def _check_header(path: Path, header: Sequence[str]) -> None:
    for name in header:
        if name not in COLUMNS and name not in SEEN:
            known = f": {', '.join(COLUMNS)}; or the form {','.join(OPENB)}"
            msg = f"{path}, line 1, field {name!r} is no column{schema.nearest(name, COLUMNS) or known}"
            raise FileError(msg)
        if header.count(name) > 1:
            msg = f"{path}, line 1, field {name} stands there {header.count(name)} times: name each column once"
            raise FileError(msg)
    for name in REQUIRED:
        if name not in header:
            msg = f"{path}, line 1, field {name} is missing: every node states {', '.join(REQUIRED)}"
            raise FileError(msg)


def _cells(path: Path, where: str, header: Sequence[str], cells: Sequence[str]) -> Mapping[str, Any]:
    if len(cells) != len(header):
        msg = f"{path}, {where}: {len(cells)} fields, the header names {len(header)}"
        raise FileError(msg)
    values = dict(zip(header, (cell.strip() for cell in cells), strict=True))
    return _openb(path, where, values) if tuple(header) == OPENB else _nested(values)


def _nested(values: Mapping[str, str]) -> dict[str, Any]:
    """One row as a body; an empty cell says nothing."""
    row: dict[str, Any] = {}
    for name, value in values.items():
        if value == "" or name in SEEN:
            continue
        outer, dot, inner = name.partition(".")
        if dot:
            cast("dict[str, str]", row.setdefault(outer, {}))[inner] = value
        else:
            row[name] = value
    return row


def _openb(path: Path, where: str, values: Mapping[str, str]) -> dict[str, Any]:
    for name in ("cpu_milli", "memory_mib", "gpu"):
        if re.fullmatch(r"[0-9]{1,15}(\.0)?", values[name]) is None:
            msg = f"{path}, {where}, field {name} is {values[name]!r}: a whole number from 0, of at most 15 digits"
            raise FileError(msg)
    if re.fullmatch(NAME_PATTERN, values["sn"]) is None:
        msg = f"{path}, {where}, field sn is {values['sn']!r}: a node's name matches {NAME_PATTERN.strip('^$')}"
        raise FileError(msg)
    cpu, memory, cards = (int(float(values[name])) for name in ("cpu_milli", "memory_mib", "gpu"))
    if cards > 0 and not values["model"]:
        msg = f"{path}, {where}, field model is empty: {cards} cards have a model"
        raise FileError(msg)
    return {
        "node": values["sn"],
        "cpu_milli": cpu,
        "memory_bytes": memory * MIB,
        "cards": cards,
        "card_model": values["model"] or None,
    }


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json_rows(path: Path, text: str) -> list[Row]:
    try:
        content: object = json.loads(text)
    except ValueError as error:
        msg = f"{path} is no JSON: {error}"
        raise FileError(msg) from None
    found = cast("dict[str, object]", content).get("nodes") if isinstance(content, dict) else content
    if not isinstance(found, list):
        msg = f'{path}, field nodes is missing: write {{"nodes": [...]}}'
        raise FileError(msg)
    places = ((f"nodes[{index}]", row) for index, row in enumerate(cast("list[object]", found)))
    return [Row(where, partial(_facts, path, where, row)) for where, row in places]


def _facts(path: Path, where: str, row: object) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        msg = f"{path}, {where} is {row!r}: a node is an object"
        raise FileError(msg)
    facts = {name: value for name, value in cast("dict[str, Any]", row).items() if name not in SEEN}
    for field, around in schema.unknown_fields(DeclaredNode, facts):
        known = schema.nearest(str(field[-1]), around["properties"]) or f": {', '.join(around['properties'])}"
        msg = f"{path}, {where}, field {schema.dotted(field)!r} is none of a node{known}"
        raise FileError(msg)
    return facts


# ---- written ---------------------------------------------------------------------------------------------------------


def as_csv(nodes: Iterable[tuple[DeclaredNode, Mapping[str, object]]]) -> str:
    """The nodes as CSV, each with what is seen of it; `read` takes it again and leaves that out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *SEEN])
    for node, seen in nodes:
        body = node.model_dump(mode="json")
        writer.writerow([*(_cell(body, name) for name in COLUMNS), *(_shown(seen.get(name)) for name in SEEN)])
    return out.getvalue()


def as_json(nodes: Iterable[tuple[DeclaredNode, Mapping[str, object]]]) -> str:
    """The nodes as JSON; `read` takes it again."""
    rows = [node.model_dump(mode="json", exclude_none=True) | dict(seen) for node, seen in nodes]
    return json.dumps({"nodes": rows}, indent=2, default=str) + "\n"


def _cell(body: Mapping[str, Any], name: str) -> str:
    outer, dot, inner = name.partition(".")
    if not dot:
        return _shown(body[outer])
    parts = cast("dict[str, object] | None", body[outer])
    return "" if parts is None else _shown(parts[inner])


def _shown(value: object) -> str:
    return "" if value is None else str(value)
