"""A stage for each test: a hub of its own, a database of its own, one inventory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.inventory.harness import Stage, open_stage


@pytest.fixture
async def stage(database: str, tmp_path: Path) -> AsyncIterator[Stage]:
    async with open_stage(database, tmp_path) as stage:
        yield stage
