"""Small worlds with much trouble keep every invariant; the same seed makes the same run, to the byte."""

import pytest

from tests.sim.__main__ import main, span
from tests.sim.faults import CALM, Rates
from tests.sim.shrink import STORM_MS, run, shrink
from tests.sim.workload import small
from tests.sim.world import World

pytestmark = pytest.mark.timeout(600)  # a busy machine takes its time

SEEDS = 40
BATCH = 10


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BATCH))
def test_invariants_hold_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + BATCH):
        outcome = run(seed)
        assert outcome.broken is None, shrink(outcome).told()


def test_invariants_hold_when_what_agents_say_is_slow() -> None:
    """A list of attempts may be older than the claims that were granted while it was on its way."""
    for seed in range(61, 71):
        outcome = run(seed, rates=Rates(outbox_slow=0.6))
        assert outcome.broken is None, outcome.told()


def test_the_seeds_meet_what_they_are_for() -> None:
    """Faults, trouble, losses and stale plans all come up; invariants that were never looked at prove nothing."""
    outcomes = [run(seed) for seed in range(1, 13)]
    kinds = {name.partition(":")[0] for outcome in outcomes for name in outcome.ingredients}
    wanted = {"late", "dropped", "twice", "rolled back", "acknowledgement lost", "request lost", "reply lost", "slow"}
    assert wanted | {"published again", "store away", "machine freezes", "link is cut", "agent crashes"} <= kinds
    checked = {name for outcome in outcomes for name in outcome.world.truth.checked}
    assert {
        "the fence holds",
        "a restore loses no committed step",
        "lost means ended",
        "no card above capacity",
    } <= checked


def test_a_seed_makes_the_same_run_again() -> None:
    first, second = run(7), run(7)
    assert [str(line) for line in first.world.story.lines] == [str(line) for line in second.world.story.lines]
    assert first.ingredients == second.ingredients
    assert first.world.truth.checked == second.world.truth.checked


def test_leaving_one_fault_out_leaves_the_others() -> None:
    """What shrinking rests on: a fault happens or not by its own name."""
    whole = run(3)
    left_out = next(name for name in whole.ingredients if name.startswith("late"))
    rest = run(3, kept=[name for name in whole.ingredients if name != left_out])
    assert left_out not in rest.ingredients
    assert len(set(rest.ingredients) & set(whole.ingredients)) > len(whole.ingredients) // 2


def test_in_peace_the_ledger_is_what_was_measured() -> None:
    """Without faults the scheduler charges what the agents measured, but for the moments of asking and telling."""
    scene = small(5)
    world = World(scene, 5, rates=CALM, kept=[f"job: {number}" for number in range(1, 9)])
    world.run(STORM_MS)
    assert world.told_ms
    for (job, attempt), told_ms in world.told_ms.items():
        runs = [
            held for (held_job, number, _), held in world.books.held.items() if (held_job, number) == (job, attempt)
        ]
        cards = sum(held.cards * held.share_milli for held in runs) / 1000
        assert 0 <= world.books.charged_ms(job, attempt) - told_ms <= 100 * cards


def test_seeds_are_one_or_a_range() -> None:
    assert (span("7"), span("1-200")) == ((7, 7), (1, 200))


@pytest.mark.parametrize("said", ["", "x", "5-", "-5", "5-1"])
def test_no_seed_is_no_proof(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--seeds", said])
    assert refused.value.code == 2
    assert f"{said!r}" in capsys.readouterr().err
