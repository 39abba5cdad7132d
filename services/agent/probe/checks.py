"""Checks before first work, and again every minute: whether time is kept, attempts have room, and cards answer.

Each comes out as passed, failed, skipped (nothing to check here) or unknown (the machine cannot say), with words.
"""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contracts.health import CardHealth, CheckResult, ClockFacts, Verdict
from contracts.nodes import Card, CardSource

TIME_SYNC, DISK_SPACE, CARDS = "time_sync", "disk_space", "cards"
NAMES = (TIME_SYNC, DISK_SPACE, CARDS)
TOOL_S = 5.0
NOT_SYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
GIB = 1024**3
DEVICES = "nvidia[0-9]*"
_LEAP = re.compile(r"^Leap status\s*: (.+)$", re.MULTILINE)
_OFFSET = re.compile(r"^System time\s*: ([0-9.]+) seconds (fast|slow)", re.MULTILINE)


class _Timex(ctypes.Structure):
    """struct timex, of which only the first word matters here: 0 asks and sets nothing."""

    _fields_ = (("modes", ctypes.c_uint), ("rest", ctypes.c_byte * 1024))


def clock() -> ClockFacts:
    """What the machine says of its clock: chrony where it answers, else systemd, else the kernel.

    The kernel alone cannot say that a clock is wrong: in guests and containers the host keeps it right.
    """
    return _chrony() or _systemd() or ClockFacts(synchronised=_kernel(), source="kernel")


def time_sync(found: ClockFacts, *, required: bool) -> CheckResult:
    """Whether a time service keeps the clock; one that does not is a failure where that is `required`."""
    if found.synchronised:
        return CheckResult(name=TIME_SYNC, verdict=Verdict.PASSED, detail=f"synchronised, says {found.source}")
    if found.synchronised is None:
        words = "no time service answers: run chrony or systemd-timesyncd, unless the host keeps the clock"
        return CheckResult(name=TIME_SYNC, verdict=Verdict.UNKNOWN, detail=words)
    verdict = Verdict.FAILED if required else Verdict.UNKNOWN
    words = f"{found.source} runs and has not synchronised the clock: look at its servers"
    return CheckResult(name=TIME_SYNC, verdict=verdict, detail=words)


def disk_space(folder: Path, least_bytes: int) -> CheckResult:
    """Whether attempts have room below `folder`, and can write there."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return CheckResult(name=DISK_SPACE, verdict=Verdict.FAILED, detail=f"{folder} cannot be written: {error}")
    words = f"{free / GIB:.1f} GiB free in {folder}, at least {least_bytes / GIB:.1f} GiB wanted"
    verdict = Verdict.PASSED if free >= least_bytes else Verdict.FAILED
    return CheckResult(name=DISK_SPACE, verdict=verdict, detail=words)


def cards(announced: Sequence[Card], seen: Sequence[CardHealth], devices: Path = Path("/dev")) -> CheckResult:
    """Whether each card answers. Declared cards cannot be asked; device files without a driver are a fault."""
    faults = [f"card {card.index}: {card.fault}" for card in seen if card.fault is not None]
    if faults:
        return CheckResult(name=CARDS, verdict=Verdict.FAILED, detail=", ".join(faults)[:4096])
    if any(card.source == CardSource.NVML for card in announced):
        return CheckResult(name=CARDS, verdict=Verdict.PASSED, detail=f"{len(seen)} cards answer")
    if announced:
        are = "card is" if len(announced) == 1 else "cards are"
        words = f"{len(announced)} {are} declared, which no driver shows"
        return CheckResult(name=CARDS, verdict=Verdict.SKIPPED, detail=words)
    files = sorted(path.name for path in devices.glob(DEVICES))
    if files:
        words = f"device files {', '.join(files[:8])} are there and no driver answers: look at nvidia-smi"
        return CheckResult(name=CARDS, verdict=Verdict.FAILED, detail=words)
    return CheckResult(name=CARDS, verdict=Verdict.SKIPPED, detail="the node has no cards")


def _kernel() -> bool | None:
    """True where the kernel's clock is kept by somebody; it does not know who else may keep it."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return None
    state = int(adjtimex(ctypes.byref(_Timex())))
    return True if 0 <= state < NOT_SYNCHRONISED else None


def _chrony() -> ClockFacts | None:
    said = _run("chronyc", "-n", "tracking")
    leap = _LEAP.search(said)
    if leap is None:
        return None
    offset = _OFFSET.search(said)
    ahead_s = None if offset is None else float(offset[1]) * (1 if offset[2] == "fast" else -1)
    return ClockFacts(
        synchronised=leap[1].strip() != "Not synchronised",
        offset_ms=None if ahead_s is None else round(ahead_s * 1000),
        source="chrony",
    )


def _systemd() -> ClockFacts | None:
    said = dict(line.split("=", 1) for line in _run("timedatectl", "show").splitlines() if "=" in line)
    if said.get("NTP") != "yes":
        return None
    return ClockFacts(synchronised=said.get("NTPSynchronized") == "yes", source="systemd")


def _run(*command: str) -> str:
    """What a tool prints; nothing where it is not there, fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TOOL_S, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
