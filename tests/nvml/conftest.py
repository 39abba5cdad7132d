"""Stubs compiled once a run, and the process that probes them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nvml.probed import Probed, probed
from tests.nvml.stub import Stub, Values, build

Cards = Callable[..., tuple[Stub, Probed]]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("nvml")
    return {"new": build(folder / "new"), "old": build(folder / "old", old=True)}


@pytest.fixture
def cards(libraries: dict[str, Path], tmp_path: Path) -> Iterator[Cards]:
    """Makes a machine with the given cards, and a process that probes it."""
    with ExitStack() as started:

        def make(*said: Values, driver: str = "new") -> tuple[Stub, Probed]:
            stub = Stub(libraries[driver], tmp_path / "cards", list(said))
            return stub, started.enter_context(probed(stub.env))

        yield make
