"""How a process begins: read its settings, set up its logs, or say what is wrong with them and end."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pydantic import ValidationError

from libs.kit.logs import configure, get_logger
from libs.kit.settings import ServiceSettings, faults

S = TypeVar("S", bound=ServiceSettings)

BAD_SETTINGS = 2
GC_ALLOCATIONS = 20_000


def read_settings(service: str, read: Callable[..., S]) -> S:
    """What `read` returns, the logs set up by it. Settings at fault become one log line and exit status 2."""
    configure(service)
    try:
        settings = read()
        configure(service, settings.log_level)
    except ValueError as error:
        detail = faults(error) if isinstance(error, ValidationError) else str(error)
        get_logger().error("settings.invalid", detail=detail)
        raise SystemExit(BAD_SETTINGS) from None
    return settings


def main(service: str, read: Callable[..., S], run: Callable[[S], Coroutine[Any, Any, None]]) -> None:
    """The command line of a service: with `--check` the settings are read and nothing is run."""
    settings = read_settings(service, read)
    if "--check" not in sys.argv[1:]:
        settle_memory()
        asyncio.run(run(settings))


def settle_memory() -> None:
    """Look for garbage less often, and never among what was imported.

    Messages leave few cycles behind; by default a busy service spends a twentieth of its time looking for them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)
