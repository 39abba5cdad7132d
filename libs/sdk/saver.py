"""Saves beside the training: copy, return, then write and hand over on a thread.

In: arrays. Out: checkpoint files handed to the backend, after the progress that led to them. One save is under way at a
time; the next call waits for it, and that wait is part of its stall.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libs.sdk import tensors as files
from libs.sdk.backend import Backend, SavedFile
from libs.sdk.errors import SaveError
from libs.sdk.reporter import Reporter
from libs.sdk.tensors import Array

POLL_S = 5.0


class Saver:
    """Writes checkpoints one after the other."""

    def __init__(self, backend: Backend, reporter: Reporter, wait_s: float) -> None:
        self._backend = backend
        self._reporter = reporter
        self._wait_s = wait_s
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def save(self, step: int, tensors: Mapping[str, Array], extra: Mapping[str, Any]) -> None:
        """Copy and return; raises SaveError when the save before failed or is still under way after `wait_s`."""
        begun = time.monotonic()
        self._join(step, self._wait_s)
        metadata = files.encoded(step, extra)
        copies = files.copied(tensors)
        stall_ms = _ms_since(begun)
        arguments = (step, copies, metadata, begun, stall_ms)
        self._thread = threading.Thread(target=self._write, args=arguments, name="farside-save", daemon=False)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Return when every save is in the store. Raises SaveError on failure or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        self._join(None, timeout_s)
        while pending := self._backend.saves(min(POLL_S, max(0.0, deadline - time.monotonic()))).pending:
            if time.monotonic() >= deadline:
                msg = f"checkpoint of step {pending[0]} is not in the store after {timeout_s:g} s: it is still tried"
                raise SaveError(msg)

    def join(self) -> None:
        """Return when the agent has the newest save. Raises SaveError."""
        self._join(None, self._wait_s)

    def _join(self, step: int | None, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                what = "the save" if step is None else f"step {step} waits, the save before it"
                msg = f"{what} is not handed over after {timeout_s:g} s: store or agent are away, save less often"
                raise SaveError(msg)
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            msg = f"an earlier checkpoint was not saved: {error}"
            raise SaveError(msg) from error

    def _write(self, step: int, copies: dict[str, Array], metadata: str, begun: float, stall_ms: int) -> None:
        try:
            path = Path(self._backend.info.folder, f"{step:012d}.safetensors")
            written = files.write(path, copies, metadata)
            saved = SavedFile(step, path.name, written.sha256, written.size_bytes, stall_ms, _ms_since(begun))
            self._reporter.flush()
            self._backend.save(saved)
        except Exception as error:  # noqa: BLE001 - raised again by the next call of the training loop
            self._error = error


def _ms_since(begun: float) -> int:
    return int((time.monotonic() - begun) * 1000)
