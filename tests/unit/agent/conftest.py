"""Fixtures of the agent's unit tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from libs.bus import SqliteLedger
from tests.unit.agent.metered import Node
from tests.unit.agent.shims import Shim, shim_in


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[Shim]:
    with shim_in(tmp_path) as made:
        yield made


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = SqliteLedger(tmp_path / "agent.db", "/farside/agent/central-1", "services.agent")
    yield Node(ledger)
    ledger.close()
