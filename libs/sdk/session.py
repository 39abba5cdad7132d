"""What a job script sees of Farside.

In: the environment (an agent's socket, or nothing on a laptop). Out: dataset, progress, checkpoints, rendezvous.
"""

import math
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from libs.sdk import protocol
from libs.sdk import tensors as files
from libs.sdk.backend import Backend
from libs.sdk.errors import SdkError
from libs.sdk.link import AgentBackend
from libs.sdk.local import LocalBackend
from libs.sdk.reporter import Reporter
from libs.sdk.saver import Saver
from libs.sdk.tensors import Array, Checkpoint

MAX_METRICS = 64
MAX_NAME = 256
PATIENCE_S = 3600.0
SAVE_WAIT_S = 1800.0
WAIT_SAVED_S = 600.0


class Session:
    """One task's hold on its job. Use it as a context manager, or call `close` at the end."""

    def __init__(self, backend: Backend, patience_s: float = PATIENCE_S, save_wait_s: float = SAVE_WAIT_S) -> None:
        self._backend = backend
        self._reporter = Reporter(backend, patience_s)
        self._saver = Saver(backend, self._reporter, save_wait_s)
        self._stopping: threading.Event | None = None

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._backend.info.job_id

    @property
    def attempt(self) -> int:
        """Which run of the job this is; 1 is the first."""
        return self._backend.info.attempt

    @property
    def rank(self) -> int:
        """Index of this member, from 0."""
        return self._backend.info.member

    @property
    def world(self) -> int:
        """How many members the job has."""
        return self._backend.info.members

    @property
    def cards(self) -> tuple[int, ...]:
        """Indexes of the cards given to this member."""
        return self._backend.info.cards

    @property
    def seed(self) -> int:
        """The job's seed; 0 where the job names none."""
        return self._backend.info.seed or 0

    @property
    def rendezvous(self) -> str | None:
        """`host:port` on member 0's node where the members meet; None outside Farside."""
        return self._backend.info.rendezvous

    @property
    def checkpoint_interval_steps(self) -> int | None:
        """Steps between checkpoints, where the job says so."""
        return self._backend.info.interval_steps

    @property
    def stopping(self) -> bool:
        """Whether the job was asked to end (SIGTERM). The first look, from the main thread, starts the listening.

        A script that never looks ends at once when asked, as any process does.
        """
        if self._stopping is None:
            self._stopping = threading.Event()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._on_term)
        return self._stopping.is_set()

    def dataset(self) -> Path:
        """Folder of the job's dataset, every file verified against its manifest; not to be written to."""
        folder = self._backend.info.dataset
        if folder is None:
            remedy = f"set `dataset` in its job file, or {protocol.DATASET_DIR_ENV} outside Farside"
            msg = f"the job names no dataset: {remedy}"
            raise SdkError(msg)
        return Path(folder)

    def progress(self, step: int, **metrics: float) -> None:
        """Report a step and figures such as `loss=0.3`; never waits. A figure that is not finite is left out."""
        if step < 0 or len(metrics) > MAX_METRICS or any(len(name) > MAX_NAME for name in metrics):
            msg = (
                f"progress of step {step} with {len(metrics)} metrics: steps start at 0, {MAX_METRICS} metrics at most"
            )
            raise ValueError(msg)
        figures = {name: float(value) for name, value in metrics.items()}
        self._reporter.add(int(step), {name: value for name, value in figures.items() if math.isfinite(value)})

    def save(self, step: int, tensors: Mapping[str, Array], extra: Mapping[str, Any] | None = None) -> None:
        """Begin a checkpoint: the arrays are copied before this returns, the rest happens beside the training.

        `extra` takes what is no array: generator states, loader position. A second save waits for the first.
        Raises SaveError, also for a failure of the save before.
        """
        self._saver.save(int(step), tensors, extra or {})

    def restore(self) -> Checkpoint | None:
        """Return the newest checkpoint that is valid for this attempt, or None for a fresh start."""
        restore = self._backend.info.restore
        return None if restore is None else files.read(Path(restore.file))

    def wait_saved(self, timeout_s: float = WAIT_SAVED_S) -> None:
        """Return when every save is in the store. Raises SaveError."""
        self._saver.wait(timeout_s)

    def ready(self, endpoint: str) -> None:
        """Say that an inference job serves at `endpoint`."""
        self._backend.ready(endpoint)

    def close(self, *, flush: bool = True) -> None:
        """Hand over what is under way: progress and the newest save. Raises SaveError."""
        try:
            if flush:
                self._saver.join()
        finally:
            self._reporter.close(flush=flush)
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(flush=error is None)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping is not None:
            self._stopping.set()


def attach(
    *,
    local_dir: Path | None = None,
    dataset: Path | None = None,
    seed: int | None = None,
    patience_s: float = PATIENCE_S,
) -> Session:
    """Attach to the job this process runs for; outside Farside, to a folder that stands for one.

    `local_dir`, `dataset` and `seed` count outside Farside only; FARSIDE_LOCAL_DIR (default `farside-local`) and
    FARSIDE_LOCAL_DATASET set the same. `patience_s` bounds how long a call waits for an agent that is away.
    """
    path = os.environ.get(protocol.SOCKET_ENV)
    if path:
        return Session(AgentBackend(path, patience_s), patience_s)
    folder = local_dir or Path(os.environ.get(protocol.LOCAL_DIR_ENV, "farside-local"))
    given = os.environ.get(protocol.DATASET_DIR_ENV)
    return Session(LocalBackend(folder, dataset or (Path(given) if given else None), seed))
