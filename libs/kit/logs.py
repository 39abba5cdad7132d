"""Logs: one JSON object a line on standard error: event, level, ts, service, whom it is about, what the call adds."""

import logging
import sys

import structlog
from structlog.types import EventDict, FilteringBoundLogger, WrappedLogger

from libs.telemetry import context

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


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
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_to_stderr,
        cache_logger_on_first_use=False,
    )
    _configure_stdlib(shared, level)


def _to_stderr(*_: object) -> structlog.PrintLogger:
    """Looked up at each line, since tests and tools put another stream in its place."""
    return structlog.PrintLogger(sys.stderr)


def _configure_stdlib(shared: list[structlog.types.Processor], level: str) -> None:
    renderer = structlog.processors.JSONRenderer()
    formatter = structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared)
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
