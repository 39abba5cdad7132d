"""What led to the present, and what may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.checkpoint.core.lineage import expire, lineage
from services.checkpoint.core.model import Checkpoint, Grant
from services.checkpoint.core.restoring import candidates
from tests.unit.checkpoint.make import checkpoint, grant


def places(found: list[Checkpoint]) -> list[tuple[int, int]]:
    return [one.place for one in found]


def test_the_newest_step_of_the_only_attempt_comes_first() -> None:
    committed = [checkpoint(1, step) for step in (10, 30, 20)]
    assert places(lineage(committed, [grant(1)])) == [(1, 30), (1, 20), (1, 10)]


def test_tc22_a_higher_step_of_a_dead_branch_is_not_in_the_lineage() -> None:
    committed = [checkpoint(1, 10), checkpoint(1, 20), checkpoint(1, 90), checkpoint(2, 30)]
    grants = [grant(1), grant(2, 20, 1)]
    assert places(lineage(committed, grants)) == [(2, 30), (1, 20), (1, 10)]
    assert [effect.checkpoint.place for effect in expire(committed, grants, 10)] == [(1, 90)]


def test_an_attempt_that_saved_nothing_leads_back_to_what_it_was_granted() -> None:
    committed = [checkpoint(1, 10), checkpoint(1, 20)]
    grants = [grant(1), grant(2, 20, 1), grant(3, 20, 1)]
    assert places(lineage(committed, grants)) == [(1, 20), (1, 10)]


def test_an_attempt_that_started_from_nothing_has_no_ancestors() -> None:
    committed = [checkpoint(1, 10), checkpoint(2, 5)]
    assert places(lineage(committed, [grant(1), grant(2)])) == [(2, 5)]


def test_without_grants_attempts_follow_each_other() -> None:
    committed = [checkpoint(1, 10), checkpoint(1, 40), checkpoint(2, 20)]
    assert places(lineage(committed, [])) == [(2, 20), (1, 10)]


def test_what_the_newest_attempt_was_granted_stays_until_it_has_committed() -> None:
    committed = [checkpoint(1, 10), checkpoint(1, 20), checkpoint(1, 30)]
    grants = [grant(1), grant(2, 20, 1)]
    assert [effect.checkpoint.place for effect in expire(committed, grants, 1)] == [(1, 10), (1, 30)]
    later = [*committed, checkpoint(2, 40)]
    assert [effect.checkpoint.place for effect in expire(later, grants, 1)] == [(1, 10), (1, 20), (1, 30)]


def test_keep_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="would keep nothing"):
        expire([checkpoint()], [], 0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Checkpoint], list[Grant]]:
    """Attempts, each granted something that stood, each committing some steps after it."""
    committed: list[Checkpoint] = []
    grants: list[Grant] = []
    for attempt in range(1, draw(st.integers(1, 5)) + 1):
        base = draw(st.sampled_from([None, *committed]))
        grants.append(grant(attempt) if base is None else grant(attempt, base.step, base.attempt))
        first = 1 + (base.step if base is not None else 0)
        steps = draw(st.sets(st.integers(first, first + 30), max_size=4))
        committed.extend(checkpoint(attempt, step) for step in steps)
    return committed, grants


@given(history=histories(), keep_last=st.integers(1, 4))
def test_rotation_keeps_the_newest_of_the_lineage_and_what_may_still_be_restored(
    history: tuple[list[Checkpoint], list[Grant]], keep_last: int
) -> None:
    committed, grants = history
    line = lineage(committed, grants)
    assert [one.step for one in line] == sorted((one.step for one in line), reverse=True)
    gone = {effect.checkpoint.place for effect in expire(committed, grants, keep_last)}
    left = [one for one in committed if one.place not in gone]
    assert places(line[:keep_last]) == [one.place for one in line[:keep_last] if one.place not in gone]
    assert candidates(committed, grants)[:1] == candidates(left, grants)[:1]
    newest = grants[-1]
    if newest.step is not None and not any(one.attempt == newest.attempt for one in committed):
        assert (newest.from_attempt, newest.step) not in gone
    assert len(left) <= keep_last + 1
