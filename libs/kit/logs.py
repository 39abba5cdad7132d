"""Logs: one JSON object a line on standard error: event, level, ts, service, whom it is about, what the call adds."""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

import structlog
from structlog.types import EventDict, FilteringBoundLogger, WrappedLogger

from libs.telemetry import context

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_render = structlog.processors.JSONRenderer()


@dataclass
class _Held:
    """Lines that wait to know whether what they tell has come to be."""

    lines: list[EventDict] = field(default_factory=list[EventDict])
    over: bool = False


_held: ContextVar[_Held | None] = ContextVar("held_lines", default=None)


@contextmanager
def held() -> Generator[None]:
    """Keep the lines of this block back until it ends: put it around a transaction.

    A block that ends in an error undoes what its lines tell: they come with `rolled_back`.
    """
    holding = _Held()
    token = _held.set(holding)
    undone: dict[str, bool] = {"rolled_back": True}
    try:
        yield
        undone = {}
    finally:
        _held.reset(token)
        holding.over = True
        for line in holding.lines:
            _to_stderr().msg(str(_render(None, "", {**line, **undone})))


def _hold(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A task that outlives the block it was begun in speaks for itself."""
    holding = _held.get()
    if holding is None or holding.over:
        return event
    holding.lines.append(event)
    raise structlog.DropEvent


def configure(service: str, level: str = "info", *, node: str | None = None) -> None:
    """Send this process's log lines, and those of its libraries, to standard error as JSON.

    Each line says what libs.telemetry.context knows: `trace`, and `job`, `node`, `tenant` and `attempt` where they
    were annotated. Lines of a process that serves one `node` always name it.
    """
    if level not in LEVELS:
        msg = f"FARSIDE_LOG_LEVEL is {level!r}: use one of {', '.join(LEVELS)}"
        raise ValueError(msg)

    def say_where(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        for name, value in context.fields().items():
            event.setdefault(name, value)
        if node is not None:
            event.setdefault("node", node)
        return event

    shared: list[structlog.types.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        say_where,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, _hold, _render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_to_stderr,
        cache_logger_on_first_use=False,
    )
    _configure_stdlib(shared, level)


class _Printer(structlog.PrintLogger):
    """A line that nobody takes (a full disk, a pipe whose reader is gone) is lost, and the work goes on."""

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):
            super().msg(message)

    debug = info = warning = error = critical = exception = msg


def _to_stderr(*_: object) -> structlog.PrintLogger:
    """Looked up at each line, since tests and tools put another stream in its place."""
    return _Printer(sys.stderr)


def _configure_stdlib(shared: list[structlog.types.Processor], level: str) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(processor=_render, foreign_pre_chain=shared)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))


def get_logger() -> FilteringBoundLogger:
    """The logger of this process; one that was never configured tells warnings and worse."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS["warning"]), logger_factory=_to_stderr
        )
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger
