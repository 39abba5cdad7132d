"""Reading what was recorded: the spans of the files in a trace folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class Seen:
    """One span as it was written."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    error: str | None
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: list[str]
    resource: dict[str, Any]
    start_ns: int
    end_ns: int

    @property
    def traceparent(self) -> str:
        """As it is sent."""
        return f"00-{self.trace}-{self.id}-03"


def spans_in(folder: Path) -> list[Seen]:
    """All spans of all processes, in the order they were written."""
    return [span for file in sorted(folder.glob("*.jsonl")) for span in _of(file)]


def named(folder: Path, name: str) -> list[Seen]:
    """The spans of one name."""
    return [span for span in spans_in(folder) if span.name == name]


def _of(file: Path) -> Iterator[Seen]:
    for line in file.read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for raw in scope["spans"]:
                    yield _seen(raw, _attributes(resource["resource"]))


def _seen(raw: dict[str, Any], resource: dict[str, Any]) -> Seen:
    status = raw.get("status", {})
    return Seen(
        name=raw["name"],
        kind=KINDS[raw["kind"]],
        trace=raw["traceId"],
        id=raw["spanId"],
        parent=raw.get("parentSpanId", ""),
        error=status.get("message", "") if status.get("code") == 2 else None,
        attributes=_attributes(raw),
        links=[(link["traceId"], link["spanId"]) for link in raw.get("links", [])],
        events=[event["name"] for event in raw.get("events", [])],
        resource=resource,
        start_ns=int(raw["startTimeUnixNano"]),
        end_ns=int(raw["endTimeUnixNano"]),
    )


def _attributes(raw: dict[str, Any]) -> dict[str, Any]:
    return {entry["key"]: _value(entry["value"]) for entry in raw.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()))
