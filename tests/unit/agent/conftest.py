"""Fixtures of the agent's unit tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.shims import Shim, shim_in


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Shim]:
    with shim_in(tmp_path) as made:
        yield made
