"""What a process tells of itself: spans into a file and to a collector, metrics to whoever scrapes them.

`telemetry(service, settings)` around the work of a process sets all of it up and closes it. Spans go as OTLP JSON, one
a line, to a file of the process in `FARSIDE_TRACE_DIR`, each as it ends; besides, to the collector that the standard
`OTEL_EXPORTER_OTLP_ENDPOINT` names. The process holds a lock on its file while it lives and writes a last span at a
clean end: a file with neither belongs to a process that was killed.
"""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_SDK_DISABLED,
    OTEL_TRACES_SAMPLER,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

from libs.kit.clock import SystemClock
from libs.kit.logs import get_logger
from libs.kit.settings import ServiceSettings
from libs.telemetry import metrics, spans
from libs.telemetry.errors import TelemetryError
from libs.telemetry.tracefile import FileTracer

SCOPE = "farside"
ENDED = "process ended"
SHUTDOWN_S = 5.0

_running = threading.Lock()


@contextmanager
def telemetry(service: str, settings: ServiceSettings, node: str | None = None) -> Generator[None, None, None]:
    """Record what this process does inside the block; inside another such block, that one goes on alone.

    Raises TelemetryError when the metrics port is taken or the trace folder cannot be written.
    """
    if not _running.acquire(blocking=False):
        yield
        return
    try:
        with ExitStack() as stack:
            resource = _resource(service, settings.version, node)
            if settings.metrics_port is not None:
                stack.enter_context(metrics.serving(settings.metrics_host, settings.metrics_port, resource))
            if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() != "true":
                name = f"{service}-{node}" if node else service
                stack.enter_context(_tracing(resource, settings.trace_dir, name))
            yield
    finally:
        _running.release()


def _resource(service: str, version: str, node: str | None) -> Resource:
    """Who this process is; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    pid = os.getpid()
    own = {
        "service.name": service,
        "service.instance.id": node or str(pid),
        "service.version": version,
        "process.pid": pid,
    }
    return Resource(own).merge(OTELResourceDetector().detect())


@contextmanager
def _tracing(resource: Resource, folder: Path | None, name: str) -> Generator[None, None, None]:
    collected = os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT) or os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
    if folder is None and not collected:
        yield
        return
    with ExitStack() as stack:
        file = None if folder is None else stack.enter_context(_own_file(folder, name))
        tracer = None if file is None else FileTracer(file, resource, SCOPE)
        if tracer is not None:
            stack.callback(_say_ended, tracer)
        if tracer is None or collected or OTEL_TRACES_SAMPLER in os.environ:
            tracer = stack.enter_context(_by_sdk(resource, file, collected=bool(collected)))
        spans.use_tracer(tracer)
        stack.callback(spans.use_tracer, None)
        yield


@contextmanager
def _by_sdk(resource: Resource, file: TextIO | None, *, collected: bool) -> Generator[Tracer, None, None]:
    """A tracer for what takes OpenTelemetry's SDK: a collector, or a sampler."""
    # An outside publisher's "not sampled" must not erase a job's journey: all is recorded unless the operator samples.
    sampler = None if OTEL_TRACES_SAMPLER in os.environ else ALWAYS_ON
    provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
    if file is not None:
        provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(stream=file)))
    if collected:
        provider.add_span_processor(BatchSpanProcessor(_to_collector()))
    try:
        yield provider.get_tracer(SCOPE)
    finally:
        _shut(provider)


@contextmanager
def _own_file(folder: Path, name: str) -> Generator[TextIO, None, None]:
    """A new file for this process, locked while it is open. What a process starts does not inherit the lock."""
    ns = round(SystemClock().now().timestamp() * 1_000_000) * 1000
    path = folder / f"{name}-{os.getpid()}-{ns}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = path.open("a", encoding="utf-8")
    except OSError as error:
        msg = f"spans cannot be written to {path} ({error}): make FARSIDE_TRACE_DIR a folder that is writable"
        raise TelemetryError(msg) from error
    with opened as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file


def _to_collector() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - slow to import, rarely wanted
        OTLPSpanExporter,
    )

    return OTLPSpanExporter()


def _say_ended(tracer: FileTracer) -> None:
    """Write the last span, whatever the sampler leaves out."""
    tracer.start_span(ENDED).end()


def _shut(provider: TracerProvider) -> None:
    """Send what waits for the collector. One that is away holds its exporter up for most of a minute, but not us."""
    closing = threading.Thread(target=provider.shutdown, name="telemetry-shutdown", daemon=True)
    closing.start()
    closing.join(SHUTDOWN_S)
    if closing.is_alive():
        get_logger().warning("telemetry.collector_away", lost="the last spans", waited_s=SHUTDOWN_S)
