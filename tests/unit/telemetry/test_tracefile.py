"""The lines of our tracer are those of OpenTelemetry's SDK and its file exporter, for all that our spans hold."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.json.file import FileSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode, Tracer

from libs.telemetry import spans
from libs.telemetry.context import Trace
from libs.telemetry.spans import Kind, span
from libs.telemetry.tracefile import FileTracer

RESOURCE = Resource({"service.name": 'a "service"', "process.pid": 4})
OUTSIDE = f"00-{'ab' * 16}-{'cd' * 8}-01"
CHANGING = {"spanId", "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "exception.stacktrace"}


def by_sdk(file: io.StringIO) -> Tracer:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(FileSpanExporter(stream=file)))
    return provider.get_tracer("farside")


def by_us(file: io.StringIO) -> Tracer:
    return FileTracer(file, RESOURCE, "farside")


def attributes() -> None:
    with span("attributes", kind=Kind.PRODUCER, trace=Trace(OUTSIDE, OUTSIDE), word='ü " \\ \n \ud800', empty=""):
        spans.put(no=False, yes=True, zero=0, less=-1, share=0.5, left_out=None)
        spans.put(infinite=float("inf"), below=-float("inf"), nothing=float("nan"))


def links_and_events() -> None:
    with span("links", kind=Kind.CONSUMER, trace=Trace(OUTSIDE, OUTSIDE), links=[OUTSIDE, OUTSIDE]):
        spans.event("plain")
        spans.event("told", asked=2)
        spans.rename("renamed")


def an_error() -> None:
    with pytest.raises(KeyError), span("fails", trace=Trace(OUTSIDE, OUTSIDE)):
        raise KeyError("what")  # noqa: EM101


def an_error_that_goes_no_further() -> None:
    with span("failed", trace=Trace(OUTSIDE, OUTSIDE)) as one:
        spans.failed(io.UnsupportedOperation("no"))
        one.set_status(StatusCode.OK)


def lines(tracer: Callable[[io.StringIO], Tracer], play: Callable[[], None]) -> list[Any]:
    """What is written for `play`, without what is never the same twice."""
    file = io.StringIO()
    spans.use_tracer(tracer(file))
    try:
        play()
    finally:
        spans.use_tracer(None)
    return [json.loads(line, object_pairs_hook=_lasting) for line in file.getvalue().splitlines()]


def _lasting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if made.get("key") in CHANGING:
        return {"key": made["key"]}
    return {name: "..." if name in CHANGING else value for name, value in made.items()}


@pytest.mark.parametrize("play", [attributes, links_and_events, an_error, an_error_that_goes_no_further])
def test_the_lines_are_those_of_the_sdk(play: Callable[[], None]) -> None:
    ours, theirs = lines(by_us, play), lines(by_sdk, play)
    assert ours == theirs
    assert len(ours) == 1


def test_ids_and_flags_are_those_of_the_parent_or_new() -> None:
    tracer = by_us(io.StringIO())
    with tracer.start_as_current_span("root") as root, tracer.start_as_current_span("child") as child:
        assert (root.is_recording(), child.is_recording()) == (True, True)
    above, below = root.get_span_context(), child.get_span_context()
    assert above.trace_id == below.trace_id
    assert above.span_id != below.span_id
    assert (above.trace_flags, below.trace_flags) == (3, 3)
    assert not root.is_recording()


def test_a_span_is_written_once() -> None:
    file = io.StringIO()
    one = by_us(file).start_span("one")
    one.end()
    one.end()
    assert file.getvalue().count("\n") == 1


def test_a_file_that_takes_no_more_stops_nobody() -> None:
    file = io.StringIO()
    tracer = by_us(file)
    file.close()
    tracer.start_span("lost").end()
