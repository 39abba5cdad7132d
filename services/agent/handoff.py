"""The files by which agent and shim speak with each other in an attempt's directory.

Each file has one writer, appears whole or not at all, and survives a power cut. `shim.json` is the exception in who
writes it: whoever creates it first owns the attempt, a shim to run it or an agent to declare that it never started.
Imports the standard library only.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from services.agent.proctree import Identity

PLAN = "plan.json"
SHIM = "shim.json"
TASK = "task.json"
STOP = "stop.json"
EXIT = "exit.json"
LOG = "log"

T = TypeVar("T")


@dataclass(frozen=True)
class LogBound:
    """What is kept of a task's output: its first `head_bytes`, and of the rest the newest `tail_bytes`."""

    head_bytes: int
    tail_bytes: int
    segment_bytes: int


@dataclass(frozen=True)
class LeaseTerms:
    """Where the lease is read, which unbroken lease the attempt stands under, and how it ends.

    The group is asked to end `grace_s + lead_s` before the deadline and killed `lead_s` before it.
    """

    path: str
    epoch: int
    grace_s: float
    lead_s: float


@dataclass(frozen=True)
class Lease:
    """The node's lease: it runs to `deadline` on the boot clock. `epoch` is raised whenever it has lapsed.

    `lapsed` is the deadline of the epoch before, None where that was in another boot.
    """

    deadline: float
    epoch: int
    boot: str
    lapsed: float | None = None


@dataclass(frozen=True)
class Plan:
    """What a shim runs."""

    command: tuple[str, ...]
    env: dict[str, str]
    work: str
    log: LogBound
    grace_s: float
    max_runtime_s: float | None
    lease: LeaseTerms | None


@dataclass(frozen=True)
class Owner:
    """Who created shim.json: a shim with its identity, or (`shim` None) an agent that gave the attempt up."""

    shim: Identity | None


@dataclass(frozen=True)
class Task:
    """The task's main process; it leads the group and session of the same number."""

    process: Identity
    started_at: str


@dataclass(frozen=True)
class Stop:
    """An order to stop. A later order may shorten the grace, never lengthen it."""

    cause: str
    grace_s: float
    asked: float
    reason: str


@dataclass(frozen=True)
class Ending:
    """How the task ended: `exit_code` is negative for a signal, None where no task ever ran."""

    cause: str
    exit_code: int | None
    message: str
    started_at: str | None
    ended_at: str


def write(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write a dataclass as JSON so that readers see the old file or the new one, if `durable` after a power cut too."""
    part = _part(path, value, durable=durable)
    part.replace(path)
    if durable:
        _sync_folder(path.parent)


def create(path: Path, value: Any) -> bool:
    """Write a dataclass as JSON unless the file exists; whether this call created it."""
    part = _part(path, value, durable=True)
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink()
    _sync_folder(path.parent)
    return True


def read_plan(folder: Path) -> Plan:
    """Read the plan; FileNotFoundError when there is none."""
    data = _load(folder / PLAN)
    if data is None:
        raise FileNotFoundError(folder / PLAN)
    lease = data["lease"]
    return Plan(
        command=tuple(data["command"]),
        env=data["env"],
        work=data["work"],
        log=LogBound(**data["log"]),
        grace_s=data["grace_s"],
        max_runtime_s=data["max_runtime_s"],
        lease=None if lease is None else LeaseTerms(**lease),
    )


def read_owner(folder: Path) -> Owner | None:
    """Who owns the attempt, or None while nobody does."""
    data = _load(folder / SHIM)
    if data is None:
        return None
    return Owner(None if data["shim"] is None else Identity(**data["shim"]))


def read_task(folder: Path) -> Task | None:
    """The task's main process, or None before it was started."""
    data = _load(folder / TASK)
    return None if data is None else Task(Identity(**data["process"]), data["started_at"])


def read_stop(folder: Path) -> Stop | None:
    """The order to stop, if one was given."""
    return _known(Stop, _load(folder / STOP))


def read_ending(folder: Path) -> Ending | None:
    """How the task ended, or None while it runs."""
    return _known(Ending, _load(folder / EXIT))


def read_lease(path: Path) -> Lease | None:
    """The node's lease, or None where none was ever held."""
    return _known(Lease, _load(path))


def _known(kind: type[T], data: Mapping[str, Any] | None) -> T | None:
    if data is None:
        return None
    names = {field.name for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return kind(**{name: value for name, value in data.items() if name in names})


def _load(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None


def _part(path: Path, value: Any, *, durable: bool) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        part.unlink()
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(json.dumps(asdict(value)).encode())
        file.flush()
        if durable:
            os.fsync(handle)
    return part


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
