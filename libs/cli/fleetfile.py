"""Fleets as files: nodes written down as CSV or JSON, read with the line and field of every mistake, and written.

Three forms are read. CSV with the columns of `COLUMNS`, a dotted one for a field within a field; CSV in the form of the
openb node list (`sn,cpu_milli,memory_mib,gpu,model`); and JSON, `{"nodes": [...]}` of declared nodes.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
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

Row = tuple[str, Mapping[str, Any]]


def read(path: Path, *, without_cards: bool = False) -> list[DeclaredNode]:
    """The nodes of a file; without cards only where that is wanted. Raises FileError that names line and field."""
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
    nodes: dict[str, tuple[str, DeclaredNode]] = {}
    for where, row in rows:
        node = _node(path, where, row)
        if node.node in nodes:
            msg = f"{path}, {where}, field node is {node.node!r}: {nodes[node.node][0]} has it already; name each once"
            raise FileError(msg)
        _check_cards(path, where, node, without_cards=without_cards)
        nodes[node.node] = (where, node)
    return [node for _, node in nodes.values()]


def _rows(path: Path, text: str) -> list[Row]:
    if not text.strip():
        return []
    return _json_rows(path, text) if text.lstrip().startswith(("{", "[")) else _csv_rows(path, text)


def _check_cards(path: Path, where: str, node: DeclaredNode, *, without_cards: bool) -> None:
    if node.cards == 0 and (node.card_model is not None or not without_cards):
        remedy = "leave the model out" if without_cards else "leave the row out, or give --without-cards"
        msg = f"{path}, {where}, field cards is 0: node {node.node} has nothing to lease; {remedy}"
        raise FileError(msg)


def _node(path: Path, where: str, row: Mapping[str, Any]) -> DeclaredNode:
    try:
        return DeclaredNode.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, wanted = schema.dotted(first["loc"]), schema.at(DeclaredNode, first["loc"])
        if first["type"] == "missing":
            said = f"is missing: state {schema.expected(wanted)}"
        else:
            said = schema.mistaken(first["input"], wanted)
        msg = f"{path}, {where}, field {name} {said}"
        raise FileError(msg) from None


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
            if not cells:
                continue
            if len(cells) != len(header):
                msg = f"{path}, {where}: {len(cells)} fields, the header names {len(header)}"
                raise FileError(msg)
            values = dict(zip(header, (cell.strip() for cell in cells), strict=True))
            rows.append((where, _openb(path, where, values) if openb else _nested(values)))
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
    rows: list[Row] = []
    for index, row in enumerate(cast("list[object]", found)):
        where = f"nodes[{index}]"
        if not isinstance(row, dict):
            msg = f"{path}, {where} is {row!r}: a node is an object"
            raise FileError(msg)
        body = cast("dict[str, Any]", row)
        facts = {name: value for name, value in body.items() if name not in SEEN}
        for field, around in schema.unknown_fields(DeclaredNode, facts):
            known = schema.nearest(str(field[-1]), around["properties"]) or f": {', '.join(around['properties'])}"
            msg = f"{path}, {where}, field {schema.dotted(field)!r} is none of a node{known}"
            raise FileError(msg)
        rows.append((where, facts))
    return rows


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
