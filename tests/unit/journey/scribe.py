"""Processes that write spans as ours do: the real SDK and file exporter, with times and ids that a test chooses."""

import fcntl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags
from typing_extensions import override

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
JOB = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"
Value = str | int | bool


class Ids(IdGenerator):
    """Ids in order."""

    def __init__(self) -> None:
        self.next = 0

    @override
    def generate_span_id(self) -> int:
        self.next += 1
        return self.next

    @override
    def generate_trace_id(self) -> int:
        self.next += 1
        return self.next << 64


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ns(seconds: float) -> int:
    return round(START.timestamp() * 1_000_000 + seconds * 1_000_000) * 1000


def outside(number: int) -> SpanContext:
    """A span that no file has."""
    return SpanContext(number << 64, number << 32, is_remote=True, trace_flags=TraceFlags(3))


@dataclass
class Writer:
    """One process: its file is locked from the start."""

    folder: Path
    service: str
    ids: Ids
    node: str = ""
    pid: int = 1
    file: Path = field(init=False)
    _held: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        name = "-".join(part for part in (self.service, self.node, str(self.pid)) if part)
        self.file = self.folder / f"{name}.jsonl"
        self._exporter: Any = FileSpanExporter(self.file)
        self._held = self.file.open("rb")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        about = {
            "service.name": self.service,
            "service.instance.id": self.node or str(self.pid),
            "process.pid": self.pid,
        }
        provider = TracerProvider(resource=Resource(about), id_generator=self.ids, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("farside")

    def span(
        self,
        name: str,
        start: float,
        length: float = 0.01,
        *,
        parent: SpanContext | None = None,
        links: Sequence[SpanContext] = (),
        error: bool = False,
        lost: bool = False,
        **attributes: Value,
    ) -> SpanContext:
        """A span of so many seconds; attributes by the part of their name behind `farside.`. `lost`: never written."""
        context = trace.set_span_in_context(NonRecordingSpan(parent)) if parent is not None else None
        given = {_name(key): value for key, value in attributes.items()}
        span = self._tracer.start_span(
            name, context=context, links=[Link(link) for link in links], attributes=given, start_time=ns(start)
        )
        if error:
            span.set_status(trace.StatusCode.ERROR, "broken")
        if not lost:
            span.end(ns(start + length))
        return span.get_span_context()

    def kill(self) -> None:
        self._exporter.shutdown()
        self._held.close()

    def end(self, when: float) -> None:
        self.span("process ended", when, 0)
        self.kill()


def _name(key: str) -> str:
    special = {
        "message": "messaging.message.id",
        "consumer": "messaging.nats.consumer",
        "deliveries": "messaging.nats.deliveries",
    }
    return special.get(key, f"farside.{key}")


@dataclass
class Stack:
    """Processes of one folder."""

    folder: Path
    ids: Ids = field(default_factory=Ids)
    writers: list[Writer] = field(default_factory=list[Writer])

    def writer(self, service: str, node: str = "", pid: int = 1) -> Writer:
        writer = Writer(self.folder, service, self.ids, node, pid)
        self.writers.append(writer)
        return writer

    def end(self, when: float = 100) -> None:
        for writer in self.writers:
            writer.end(when)
