"""The rules: what fires, what only counts, what ends an episode, and that the order of reading does not matter."""

import itertools
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.alerts import AlertPhase
from contracts.checkpoints import CheckpointFailure
from services.alerting.core.model import POINTS_LIMIT, Count, Fire, Point, Resolve, Signal, Watch, add
from services.alerting.core.rules import (
    CHECKPOINT_FAILED,
    NODE_LOST,
    RULES,
    fingerprint,
    resolve_by_hand,
    rules_for,
)
from tests.unit.alerting.make import JOB, NOW, committed, failed, finished, lost, returned, run


def test_a_lost_node_fires_once_and_resolves_when_it_is_back() -> None:
    watch, effects = run(NODE_LOST, lost(3), lost(4, "requeueing released: burnt down"), returned(5))
    fired, counted, resolved = effects
    assert isinstance(fired, Fire)
    assert fired.alert.level == 1
    assert fired.alert.labels == {"alertname": "NodeLost", "node": "central-1"}
    assert fired.alert.annotations["description"] == "no heartbeat for 270 s"
    assert isinstance(counted, Count)
    assert counted.alert.seen == 2
    assert counted.alert.annotations["description"] == "requeueing released: burnt down"
    assert isinstance(resolved, Resolve)
    assert resolved.alert.alert_id == fired.alert.alert_id
    assert resolved.alert.state is AlertPhase.RESOLVED
    assert resolved.alert.resolution == "node central-1 is back: heard again"
    assert watch == Watch((), (Point(5),), None)


def test_a_failed_checkpoint_fires_once_and_resolves_by_a_commit_that_reaches_as_far() -> None:
    _, effects = run(CHECKPOINT_FAILED, failed(5, 150), failed(6, 200), committed(7, 150), committed(8, 200))
    fired, counted, resolved = effects
    assert isinstance(fired, Fire)
    assert fired.alert.level == 3
    assert fired.alert.labels == {"alertname": "CheckpointFailed", "tenant": "acme", "job": JOB}
    assert isinstance(counted, Count)
    assert (counted.alert.seen, counted.alert.annotations["step"]) == (2, "200")
    assert isinstance(resolved, Resolve)
    assert resolved.alert.resolution == "step 200 was committed by attempt 1"


def test_a_failure_that_is_read_late_counts_but_the_annotations_stay_the_newest() -> None:
    _, effects = run(CHECKPOINT_FAILED, failed(6, 200), failed(5, 150))
    assert isinstance(effects[1], Count)
    assert effects[1].alert.annotations["step"] == "200"


def test_the_fence_at_work_is_no_failure() -> None:
    watch, effects = run(CHECKPOINT_FAILED, failed(5, 150, CheckpointFailure.FENCED))
    assert (watch, effects) == (Watch(), [])


@pytest.mark.parametrize("cause", [cause for cause in CheckpointFailure if cause is not CheckpointFailure.FENCED])
def test_every_other_cause_fires(cause: CheckpointFailure) -> None:
    _, effects = run(CHECKPOINT_FAILED, failed(5, 150, cause))
    assert isinstance(effects[0], Fire)
    assert effects[0].alert.annotations["cause"] == cause.value


def test_the_end_of_the_job_resolves_and_nothing_fires_after_it() -> None:
    _, effects = run(CHECKPOINT_FAILED, failed(5, 150), finished(), failed(6, 200), committed(4, 100))
    assert [type(effect) for effect in effects] == [Fire, Resolve]
    assert effects[1].alert.resolution == "the job has finished: succeeded"


@pytest.mark.parametrize(
    "read",
    [
        [committed(6, 150), failed(5, 150)],
        [committed(6, 200), failed(5, 150)],
        [committed(6, 200), committed(9, 100), failed(5, 150)],
        [finished(), failed(5, 150)],
    ],
)
def test_an_older_failure_never_fires_after_a_newer_commit(read: list[Signal]) -> None:
    assert run(CHECKPOINT_FAILED, *read)[1] == []


def test_a_checkpoint_found_damaged_fires_though_it_was_committed_before() -> None:
    for read in itertools.permutations([committed(4, 150), failed(5, 150)]):
        watch, _ = run(CHECKPOINT_FAILED, *read)
        assert watch.firing is not None


def test_an_older_loss_never_fires_after_a_newer_return() -> None:
    assert run(NODE_LOST, returned(4), lost(3))[1] == []


def test_al2_nothing_but_a_closing_ends_an_episode() -> None:
    watch, _ = run(NODE_LOST, lost(3))
    watch, effects = run(NODE_LOST, lost(4), lost(2), returned(1), watch=watch)
    assert [type(effect) for effect in effects] == [Count, Count]
    assert watch.firing is not None


def test_al6_a_later_firing_is_an_episode_of_its_own() -> None:
    _, effects = run(NODE_LOST, lost(3), returned(4), lost(5))
    first, _, second = effects
    assert isinstance(second, Fire)
    assert second.alert.alert_id != first.alert.alert_id
    assert second.alert.fingerprint == first.alert.fingerprint
    assert second.alert.seen == 1


def test_al7_the_fingerprint_is_of_the_labels_in_any_order() -> None:
    labels = {"alertname": "CheckpointFailed", "tenant": "acme", "job": JOB}
    found = {fingerprint(dict(order)) for order in itertools.permutations(labels.items())}
    [one] = found
    assert len(one) == 16
    assert one != fingerprint({**labels, "tenant": "other"})
    assert fingerprint({"a": "bc"}) != fingerprint({"ab": "c"})


def test_al7_an_episode_carries_the_time_of_receipt() -> None:
    _, effects = run(NODE_LOST, lost(3), returned(4))
    assert effects[0].alert.fired_at == NOW
    assert effects[1].alert.resolved_at == NOW + timedelta(seconds=1)


def test_by_hand_what_was_seen_is_dealt_with_and_what_comes_fires() -> None:
    watch, _ = run(NODE_LOST, lost(3))
    watch, effect = resolve_by_hand(watch, "by hand", NOW)
    assert isinstance(effect, Resolve)
    watch, effects = run(NODE_LOST, lost(2), watch=watch)
    assert effects == []
    _, effects = run(NODE_LOST, lost(4), watch=watch)
    assert isinstance(effects[0], Fire)
    assert resolve_by_hand(watch, "by hand", NOW)[1] is None


def test_words_of_senders_are_no_templates() -> None:
    _, effects = run(NODE_LOST, lost(3, "{node.__class__} {0}"))
    assert effects[0].alert.annotations["description"] == "{node.__class__} {0}"


def test_each_message_concerns_its_rule_alone() -> None:
    for rule in RULES:
        assert [*rules_for(Signal(rule.opens, Point(1), {}))] == [rule]


def _truth(events: Sequence[Signal]) -> bool:
    """Whether an alert fires, told from the whole history: a failure that no later commit covers."""
    openings = [one.at for one in events if one.message == CHECKPOINT_FAILED.opens]
    closings = [one.at for one in events if one.message != CHECKPOINT_FAILED.opens]
    return any(not any(closing.covers(opening) for closing in closings) for opening in openings)


def _history(kinds: list[tuple[bool, int]]) -> list[Signal]:
    return [failed(number, step) if bad else committed(number, step) for number, (bad, step) in enumerate(kinds, 1)]


_ANY_ORDER = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=7).map(_history).flatmap(st.permutations)


@given(_ANY_ORDER)
def test_whether_it_fires_does_not_depend_on_the_order(read: list[Signal]) -> None:
    watch, effects = run(CHECKPOINT_FAILED, *read)
    assert (watch.firing is not None) == _truth(read)
    told = [type(effect) for effect in effects if not isinstance(effect, Count)]
    assert told == [Fire, Resolve] * (len(told) // 2) + [Fire] * (len(told) % 2)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=200))
def test_points_are_bounded_and_none_covers_another(pairs: list[tuple[int, int]]) -> None:
    points: tuple[Point, ...] = ()
    for pair in pairs:
        points = add(points, Point(*pair))
    assert len(points) <= POINTS_LIMIT
    assert not any(one.covers(other) for one, other in itertools.permutations(points, 2))
