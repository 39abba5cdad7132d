"""NVML as it is found on nodes: of any age, with cards of any kind, some of them broken.

In: calls by name. Out: their answer, or None where this driver or this card has none, which is never the same as zero.
What tells that a card is broken is kept as the reading's `fault`. The library is asked for by its usual name, so a
stand-in on the loader's path is found as well.
"""

from collections.abc import Iterator
from typing import Any, Protocol, cast

from libs.kit.logs import get_logger

MAX_CARDS = 1024
UNKNOWN_ERROR = 999
FAULTS = {
    9: "driver_not_loaded",
    14: "corrupted_inforom",
    15: "gpu_is_lost",
    16: "reset_required",
    17: "blocked_by_system",
    18: "driver_mismatch",
    UNKNOWN_ERROR: "unknown_error",
}
ESSENTIAL = frozenset({"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"})
GONE = frozenset({"driver_not_loaded", "gpu_is_lost", "reset_required", "driver_mismatch"})
STALE_SESSION = frozenset({1, 9, 18})


class Nvml(Protocol):
    """The part of `pynvml` that every version has; the rest is asked for by name."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: N802, D102 - NVML's own names
    def nvmlShutdown(self) -> None: ...  # noqa: N802, D102
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802, D102
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...  # noqa: N802, D102


def load_nvml() -> Nvml | None:
    """`pynvml`, or None where it is not installed; whether a driver is there shows at its first call."""
    try:
        import pynvml  # noqa: PLC0415 - an extra; most nodes of a test stack have no use for it
    except ImportError:
        return None
    return cast("Nvml", cast("object", pynvml))


def code_of(error: Exception) -> int:
    """NVML's number of an error."""
    return int(getattr(error, "value", UNKNOWN_ERROR))


class Asking:
    """Questions about one card; `fault` is the first answer that says that the card, or its driver, is broken."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self.index = index
        self.fault: str | None = None
        self.stale = False
        self._nvml = nvml
        self._handle = self._call("nvmlDeviceGetHandleByIndex", index)

    def ask(self, call: str, *more: object) -> Any | None:
        """The driver's answer about this card, or None."""
        if self._handle is None or self.fault in GONE:
            return None
        return self._call(call, self._handle, *more)

    def _call(self, call: str, *words: object) -> Any | None:
        function = getattr(self._nvml, call, None)
        if function is None:
            return None
        try:
            return function(*words)
        except self._nvml.NVMLError as error:
            code = code_of(error)
            self.stale |= code in STALE_SESSION
            fault = FAULTS.get(code)
            if fault in GONE or call in ESSENTIAL:  # some drivers know no better word for what they do not support
                self.fault = self.fault or fault
            return None


class Driver:
    """NVML, opened when it is first asked and again after an error that ended the session."""

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml
        self._open = False

    def cards(self) -> Iterator[Asking]:
        """One after another, questions about each card; none without a driver."""
        nvml = self.session()
        if nvml is None:
            return
        for index in range(min(MAX_CARDS, self._count(nvml))):
            asking = Asking(nvml, index)
            yield asking
            self._open &= not asking.stale

    def session(self) -> Nvml | None:
        """The open library; None without a driver."""
        if self._nvml is None or self._open:
            return self._nvml
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            get_logger().debug("nvml.absent", error=str(error))
            return None
        self._open = True
        return self._nvml

    def _count(self, nvml: Nvml) -> int:
        try:
            return nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            get_logger().warning("nvml.silent", error=str(error))
            self._open = False
            return 0
