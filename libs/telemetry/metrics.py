"""Metrics: counters, histograms and gauges, served for Prometheus while this process has a metrics port.

    REFUSED = counter("farside.usage.refused", "{sample}", "Samples that are kept but not billed.")
    REFUSED.add(3, fault="overlap")

Names are OpenTelemetry's; Prometheus reads `farside_usage_refused_total`. Attributes are words of a bounded set (a
template, a consumer, an outcome), never ids, nodes or tenants. While nothing is served, instruments cost nothing.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TypeVar

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, start_http_server

from libs.telemetry.errors import TelemetryError

SCOPE = "farside"
DURATION_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

Attributes = tuple[tuple[str, str], ...]
Reading = float | Iterable[tuple[float, Mapping[str, str]]]
"""What a gauge shows: one value, or one for each set of attributes."""


class Counter:
    """Counts up; see `counter`. Counting is adding to a dictionary, which the meter reads at each scrape."""

    def __init__(self, name: str, unit: str, description: str) -> None:
        self._told = (name, unit, description)
        self._counts: dict[Attributes, int] | None = None

    def add(self, amount: int = 1, **attributes: str) -> None:
        """Count `amount` more."""
        if self._counts is not None:
            key = tuple(sorted(attributes.items()))
            self._counts[key] = self._counts.get(key, 0) + amount

    def bind(self, meter: Meter | None) -> None:
        """Count from zero on, as `meter` shows it, or no more."""
        self._counts = None
        if meter is not None:
            counts: dict[Attributes, int] = {}
            self._counts = counts
            name, unit, description = self._told
            meter.create_observable_counter(name, [lambda _: _observations(counts)], unit, description)


def _observations(counts: dict[Attributes, int]) -> Iterable[Observation]:
    return [Observation(count, dict(attributes)) for attributes, count in list(counts.items())]


class Histogram:
    """How long things take, in seconds; see `histogram`."""

    def __init__(self, name: str, description: str) -> None:
        self._name = name
        self._description = description
        self._record: Callable[..., None] | None = None

    def record(self, seconds: float, **attributes: str) -> None:
        """One more took `seconds`."""
        if self._record is not None:
            self._record(seconds, attributes)

    def bind(self, meter: Meter | None) -> None:
        """Measure with `meter` from zero on, or no more."""
        if meter is None:
            self._record = None
            return
        made = meter.create_histogram(
            self._name, "s", self._description, explicit_bucket_boundaries_advisory=DURATION_BOUNDS_S
        )
        self._record = made.record


class Gauge:
    """What is so at the moment of looking; see `gauge`."""

    def __init__(self, name: str, read: Callable[[], Reading], unit: str, description: str) -> None:
        self.read = read
        self._name = name
        self._unit = unit
        self._description = description

    def bind(self, meter: Meter | None) -> None:
        """Have `meter` look, from its own thread."""
        if meter is not None:
            meter.create_observable_gauge(self._name, [self._observe], self._unit, self._description)

    def _observe(self, _: CallbackOptions) -> Iterable[Observation]:
        reading = self.read()
        if isinstance(reading, int | float):
            return [Observation(reading)]
        return [Observation(value, dict(attributes)) for value, attributes in reading]


Instrument = Counter | Histogram | Gauge
Made = TypeVar("Made", Counter, Histogram, Gauge)

_known: dict[str, Instrument] = {}
_meters: list[Meter] = []
"""The meter that the instruments are bound to, if there is one."""


def counter(name: str, unit: str, description: str) -> Counter:
    """A counter. `unit` is UCUM, or what is counted in braces (`{message}`)."""
    return _add(name, Counter(name, unit, description))


def histogram(name: str, description: str) -> Histogram:
    """A distribution of seconds."""
    return _add(name, Histogram(name, description))


def gauge(name: str, read: Callable[[], Reading], unit: str = "", description: str = "") -> Gauge:
    """A value that is looked up at each scrape, in a thread beside the event loop; one of the same name is replaced."""
    known = _known.get(name)
    if isinstance(known, Gauge):
        known.read = read
        return known
    return _add(name, Gauge(name, read, unit, description))


def _add(name: str, instrument: Made) -> Made:
    if name in _known:
        msg = f"there is an instrument {name!r} already: one name, one instrument"
        raise ValueError(msg)
    _known[name] = instrument
    for meter in _meters:
        instrument.bind(meter)
    return instrument


def _bind(meter: Meter | None) -> None:
    _meters[:] = [] if meter is None else [meter]
    for instrument in _known.values():
        instrument.bind(meter)


@contextmanager
def serving(host: str, port: int, resource: Resource) -> Generator[None, None, None]:
    """Count, and show the counts at http://host:port/metrics. Raises TelemetryError."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, scope_info_enabled=False)
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        provider.shutdown()
        msg = (
            f"metrics cannot be served at {host}:{port} ({error}): "
            "another process has the port, or FARSIDE_METRICS_PORT or FARSIDE_METRICS_HOST is wrong"
        )
        raise TelemetryError(msg) from error
    _bind(provider.get_meter(SCOPE))
    try:
        yield
    finally:
        _bind(None)
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()
