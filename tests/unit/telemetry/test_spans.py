"""Spans under life and hop: who is whose parent, what is told of errors, and what happens when nothing records."""

import ast
import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from libs.telemetry import context, spans
from libs.telemetry.context import Trace
from libs.telemetry.spans import MAX_LINKS, annotate, put, record, span

ROOT = Path(__file__).parents[3]
OTHER = f"00-{'ab' * 16}-{'cd' * 8}-01"
UNSAMPLED = f"00-{'ab' * 16}-{'cd' * 8}-00"


@pytest.fixture
def kept() -> Iterator[InMemorySpanExporter]:
    """Where the spans of the test end up."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.use_tracer(provider.get_tracer("test"))
    yield exporter
    spans.use_tracer(None)


def by_name(kept: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {one.name: one for one in kept.get_finished_spans()}


def own(one: ReadableSpan) -> str:
    """The traceparent of a span."""
    at = one.get_span_context()
    assert at is not None
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"


def parent(one: ReadableSpan) -> str | None:
    return None if one.parent is None else f"{one.parent.span_id:016x}"


def test_a_span_without_a_parent_begins_a_life_and_those_inside_keep_it(kept: InMemorySpanExporter) -> None:
    with span("outer"):
        outside = context.current()
        with span("inner"):
            inside = context.current()
    assert context.current() is None
    assert outside is not None
    assert inside is not None
    found = by_name(kept)
    assert outside == Trace(own(found["outer"]), own(found["outer"]))
    assert inside == Trace(own(found["outer"]), own(found["inner"]))
    assert parent(found["outer"]) is None
    assert parent(found["inner"]) == own(found["outer"]).split("-")[2]


def test_a_root_is_a_trace_of_its_own_that_links(kept: InMemorySpanExporter) -> None:
    with span("one") as _, span("two", root=True, links=[Trace("", OTHER), OTHER]):
        inside = context.current()
    found = by_name(kept)
    assert inside is not None
    assert inside.life == inside.hop == own(found["two"])
    assert context.trace_id(own(found["one"])) != context.trace_id(own(found["two"]))
    assert [link.context.span_id for link in found["two"].links] == [int("cd" * 8, 16)] * 2


def test_a_span_of_another_trace_keeps_that_life(kept: InMemorySpanExporter) -> None:
    life = Trace(OTHER, OTHER)
    with span("here"), span("there", trace=life):
        inside = context.current()
    found = by_name(kept)
    assert inside == Trace(OTHER, own(found["there"]))
    assert context.trace_id(own(found["there"])) == "ab" * 16


def test_a_life_may_begin_in_the_trace_of_an_outsider(kept: InMemorySpanExporter) -> None:
    with span("arrived", trace=Trace(OTHER, OTHER), begins=True):
        inside = context.current()
    (arrived,) = kept.get_finished_spans()
    assert inside == Trace(own(arrived), own(arrived))
    assert parent(arrived) == "cd" * 8


def test_pitfall_31_flags_are_bits(kept: InMemorySpanExporter) -> None:
    """Whether a trace is sampled is one bit; roots carry others besides, and what is not sampled stays so."""
    with span("root"):
        inside = context.current()
    assert inside is not None
    assert int(inside.hop.split("-")[3], 16) & 1
    with span("left out", trace=Trace(UNSAMPLED, UNSAMPLED)):
        inside = context.current()
    assert inside is not None
    assert not int(inside.hop.split("-")[3], 16) & 1
    assert set(by_name(kept)) == {"root"}


def test_links_are_bounded(kept: InMemorySpanExporter) -> None:
    links = [f"00-{number:032x}-{number:016x}-01" for number in range(1, MAX_LINKS + 10)]
    with span("batch", root=True, links=links):
        pass
    kept_links = kept.get_finished_spans()[0].links
    assert [link.context.trace_id for link in kept_links] == list(range(1, MAX_LINKS + 1))


def test_what_is_raised_makes_an_error(kept: InMemorySpanExporter) -> None:
    text = "no"
    with pytest.raises(ValueError, match=text), span("failing"):
        raise ValueError(text)
    (failing,) = kept.get_finished_spans()
    assert failing.status.status_code is StatusCode.ERROR
    assert failing.status.description == "ValueError: no"
    assert [event.name for event in failing.events] == ["exception"]


async def test_a_cancelled_step_says_so(kept: InMemorySpanExporter) -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        with span("waiting"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    (waiting,) = kept.get_finished_spans()
    assert waiting.status.description == "cancelled"


def test_what_is_over_is_recorded_with_its_times(kept: InMemorySpanExporter) -> None:
    start = datetime(2026, 1, 1, 0, 0, 0, 123457, tzinfo=UTC)
    record("run attempt", start=start, end=start + timedelta(hours=1), trace=Trace(OTHER, OTHER), links=[OTHER])
    (run,) = kept.get_finished_spans()
    assert (run.start_time, run.end_time) == (1767225600123457000, 1767229200123457000)
    assert context.trace_id(own(run)) == "ab" * 16


async def test_annotations_last_as_long_as_their_span_and_reach_no_other_task(kept: InMemorySpanExporter) -> None:
    async def handle(job: str) -> dict[str, object]:
        with span("handle"):
            annotate(job=job, node=None, tenant="acme", attempt=2)
            await asyncio.sleep(0)
            return dict(context.fields())

    one, two = await asyncio.gather(handle("one"), handle("two"))
    assert (one["job"], two["job"]) == ("one", "two")
    assert one == {"trace": one["trace"], "job": "one", "tenant": "acme", "attempt": 2}
    assert context.fields() == {}
    with span("outer"):
        annotate(node="a")
        with span("inner"):
            annotate(job="j")
        assert set(context.fields()) == {"trace", "node"}
    attributes = by_name(kept)["inner"].attributes
    assert attributes is not None
    assert dict(attributes) == {"farside.job": "j"}


def test_when_nothing_records_life_and_hop_flow_on_as_they_came() -> None:
    with span("none") as _:
        assert context.current() is None
    with context.use(Trace(OTHER, OTHER)), span("inner"):
        put(**{"farside.job": "x"})
        annotate(job="x")
        assert context.current() == Trace(OTHER, OTHER)
        assert context.fields() == {"trace": "ab" * 16, "job": "x"}
        with span("root", root=True):
            assert context.current() is None


@pytest.mark.parametrize(
    "sent",
    ["", "00-abc", f"ff-{'1' * 32}-{'2' * 16}-01", f"00-{'0' * 32}-{'2' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01"],
)
def test_what_is_no_traceparent_is_passed_over(sent: str) -> None:
    assert context.from_headers({"traceparent": sent}) is None
    assert context.from_headers({"Traceparent": OTHER, "CE-Traceparent": sent}) == Trace(OTHER, OTHER)


def test_pitfall_33_no_span_is_open_across_a_yield() -> None:
    """A generator that yields inside a span leaves it open, and current, for whoever runs in between.

    What `contextmanager` makes of one is no such generator: its caller's block is what the span is about.
    """
    guilty = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for part in ("libs", "services", "deploy")
        for path in (ROOT / part).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_context_manager(function)
        for node in ast.walk(function)
        if isinstance(node, ast.With) and any(_opens_span(item.context_expr) for item in node.items)
        if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
    ]
    assert guilty == []


def _is_context_manager(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("contextmanager" in ast.unparse(decorator) for decorator in function.decorator_list)


def _opens_span(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and ast.unparse(expression.func).rpartition(".")[2] == "span"
