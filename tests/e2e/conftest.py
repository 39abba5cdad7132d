"""Fixtures of the end-to-end tests."""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands import using


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, as closed to other users as mkdtemp makes it."""
    path = Path(tempfile.mkdtemp(prefix="fs-"))
    yield path
    for pid in using(path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path)
