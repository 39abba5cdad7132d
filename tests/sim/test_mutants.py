"""A core that is broken on purpose is found, and its story is short enough to read."""

import pytest

from tests.sim.mutants import LIKELY, MUTANTS
from tests.sim.shrink import MOST_LINES, run, shrink

pytestmark = pytest.mark.timeout(600)  # a busy machine takes its time

SEEDS = 150
FEW = 8


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_found(name: str) -> None:
    seeds = [LIKELY.get(name, 1), *range(1, SEEDS)]
    found = next((one for one in (run(seed, MUTANTS[name]) for seed in seeds) if one.broken), None)
    assert found is not None, f"no seed below {SEEDS} finds the mutant {name!r}"
    assert found.broken is not None
    story = shrink(found, MUTANTS[name])
    assert story.broken is not None
    assert story.broken.invariant == found.broken.invariant
    assert len(story.ingredients) <= FEW, story.told()
    assert len(story.told().splitlines()) <= MOST_LINES + 2
    assert all(name in story.told() for name in story.broken.about)
