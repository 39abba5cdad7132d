"""The rules: what fires, what only counts, what ends an episode, and that the order of reading does not matter."""

import itertools
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random  # noqa: TID251 - hypothesis hands it out

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import registry
from contracts.alerts import AlertPhase
from contracts.checkpoints import CheckpointFailure
from contracts.nodes import NodeState
from services.alerting.core import signals
from services.alerting.core.history import LIMIT
from services.alerting.core.model import Count, Effect, Fire, Point, Resolve, Signal, Watch
from services.alerting.core.rules import (
    BREAKER_OPEN,
    CHECKPOINT_FAILED,
    NODE_LOST,
    NODE_QUARANTINED,
    RULES,
    fingerprint,
    resolve_by_hand,
    rules_for,
)
from tests.unit.alerting.make import (
    JOB,
    NOW,
    committed,
    failed,
    finished,
    lost,
    quarantined,
    released,
    returned,
    run,
)


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
    assert watch.firing is None
    assert [(closing.at, closing.told) for closing in watch.closings] == [(Point(5), True)]


def test_a_faulty_node_fires_once_and_resolves_when_nothing_of_it_is_out_of_the_pool() -> None:
    watch, effects = run(
        NODE_QUARANTINED,
        quarantined(3),
        quarantined(4, "all of it", "XID 79; XID 48"),
        released(5, "card 1"),
        released(6),
    )
    fired, counted, resolved = effects
    assert isinstance(fired, Fire)
    assert (fired.alert.level, fired.alert.labels) == (2, {"alertname": "NodeQuarantined", "node": "central-1"})
    assert fired.alert.annotations["summary"] == "node central-1 is faulty: card 1 is out of the pool"
    assert isinstance(counted, Count)
    assert counted.alert.annotations["description"] == "XID 79; XID 48"
    assert isinstance(resolved, Resolve)
    assert resolved.alert.resolution == "nothing of node central-1 is out of the pool any more: no more: XID 79"
    assert watch.firing is None


def test_a_faulty_node_that_falls_silent_stays_so_until_it_is_back_without_the_fault() -> None:
    read = (quarantined(3, "all of it"), returned(5, out="all of it"))
    watch, effects = run(NODE_QUARANTINED, *read)
    assert [type(effect) for effect in effects] == [Fire]
    _, effects = run(NODE_QUARANTINED, returned(7), watch=watch)
    assert [type(effect) for effect in effects] == [Resolve]


@pytest.mark.parametrize("read", [*itertools.permutations([quarantined(1), released(2, "card 1"), released(3)])])
def test_the_end_of_one_of_two_faults_ends_nothing_in_any_order(read: tuple[Signal, ...]) -> None:
    watch, effects = run(NODE_QUARANTINED, *read)
    assert [type(effect) for effect in effects] == [Fire, Resolve]
    assert watch.firing is None


def test_an_open_breaker_fires_until_it_is_closed() -> None:
    facts = {"breaker": "faults", "reason": "2 of 4 nodes found faulty"}
    opening = Signal(registry.BREAKERS_OPENED.id, Point(1), facts)
    closing = Signal(registry.BREAKERS_CLOSED.id, Point(2), facts | {"reason": "rolled back"})
    fired, resolved = run(BREAKER_OPEN, opening, closing)[1]
    assert (fired.alert.level, fired.alert.labels) == (1, {"alertname": "BreakerOpen", "breaker": "faults"})
    assert fired.alert.annotations == {
        "summary": "the breaker of faults is open",
        "description": "2 of 4 nodes found faulty",
    }
    assert resolved.alert.resolution == "the breaker of faults is closed: rolled back"
    assert [type(effect) for effect in run(BREAKER_OPEN, closing, opening)[1]] == [Fire, Resolve], "read late"


@pytest.mark.parametrize(
    ("phase", "bad_cards", "out"),
    [
        ("quarantined", [], "all of it"),
        ("ready", [1], "card 1"),
        ("lost", [0, 3], "cards 0, 3"),
        ("ready", [], "nothing"),
    ],
)
def test_what_is_out_of_the_pool_is_read_from_the_state(phase: str, bad_cards: list[int], out: str) -> None:
    path = Path(registry.__file__).parent / "examples" / "nodes.released.v1" / "good-after-reboot.json"
    body = json.loads(path.read_text(encoding="utf-8"))["body"] | {"state": phase, "bad_cards": bad_cards}
    assert signals.node("x", NodeState.model_validate(body), 1).facts["out"] == out


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
    ("read", "words"),
    [
        ([committed(6, 150), failed(5, 150)], "step 150 was committed by attempt 1"),
        ([committed(6, 200), failed(5, 150)], "step 200 was committed by attempt 1"),
        ([committed(6, 100), committed(9, 200), failed(5, 150)], "step 200 was committed by attempt 1"),
        ([finished(), failed(5, 150)], "the job has finished: succeeded"),
    ],
)
def test_a_failure_read_after_what_has_mended_it_fires_and_resolves_at_once(read: list[Signal], words: str) -> None:
    watch, effects = run(CHECKPOINT_FAILED, *read)
    fired, resolved = effects
    assert isinstance(fired, Fire)
    assert isinstance(resolved, Resolve)
    assert fired.alert.alert_id == resolved.alert.alert_id
    assert fired.alert.annotations["step"] == "150"
    assert resolved.alert.resolution == words
    assert watch.firing is None
    assert run(CHECKPOINT_FAILED, *read, watch=watch)[1] == [], "a second time it adds nothing"


def test_a_checkpoint_found_damaged_fires_though_it_was_committed_before() -> None:
    for read in itertools.permutations([committed(4, 150), failed(5, 150)]):
        watch, _ = run(CHECKPOINT_FAILED, *read)
        assert watch.firing is not None


def test_a_loss_read_after_its_return_fires_and_resolves_at_once() -> None:
    watch, effects = run(NODE_LOST, returned(4), lost(3))
    assert [type(effect) for effect in effects] == [Fire, Resolve]
    assert effects[1].alert.resolution == "node central-1 is back: heard again"
    assert run(NODE_LOST, lost(3), lost(2), returned(4), watch=watch)[1] == [], "that episode has been told"


_FLAPPING = [lost(1, "first"), returned(2, "once"), lost(3, "second"), returned(4, "twice")]


@pytest.mark.parametrize("read", [*itertools.permutations(_FLAPPING)])
def test_a_flapping_node_has_the_same_two_episodes_in_any_order(read: tuple[Signal, ...]) -> None:
    watch, effects = run(NODE_LOST, *read)
    told = [effect for effect in effects if not isinstance(effect, Count)]
    assert [type(effect) for effect in told] == [Fire, Resolve, Fire, Resolve]
    assert run(NODE_LOST, *read, watch=watch) == (watch, [])


def test_an_episode_that_is_read_late_does_not_end_the_alert_that_fires() -> None:
    """Receivers know it by its fingerprint: the last that they hear must be that it fires."""
    watch, effects = run(NODE_LOST, returned(2), lost(3, "second"), lost(1, "first"))
    assert [type(effect) for effect in effects] == [Fire, Resolve, Fire]
    first, _, second = effects
    assert watch.firing == second.alert
    assert (effects[1].alert.alert_id, effects[1].alert.annotations["description"]) == (first.alert.alert_id, "first")
    assert second.alert.annotations["description"] == "second"


def test_a_true_end_that_is_read_late_adds_nothing() -> None:
    assert [type(effect) for effect in run(NODE_LOST, lost(1), returned(4), returned(2))[1]] == [Fire, Resolve]


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


def _rounds(effects: Sequence[Effect]) -> int:
    """How many episodes were told; each fires once, and is over before the next fires."""
    told = [effect for effect in effects if not isinstance(effect, Count)]
    assert [type(effect) for effect in told] == ([Fire, Resolve] * len(told))[: len(told)]
    ids = [effect.alert.alert_id for effect in told]
    assert ids[::2][: len(ids) // 2] == ids[1::2]
    assert len({*ids}) == (len(ids) + 1) // 2
    return len({*ids})


def _node(kinds: list[bool]) -> list[Signal]:
    """The history of a node."""
    return [lost(n, f"reason {n}") if bad else returned(n, f"reason {n}") for n, bad in enumerate(kinds, 1)]


def _job(kinds: list[tuple[bool, int]]) -> list[Signal]:
    """The history of a job's checkpoints."""
    return [failed(number, step) if bad else committed(number, step) for number, (bad, step) in enumerate(kinds, 1)]


def _forward(kinds: list[tuple[bool, int]]) -> list[Signal]:
    """That of a job which never goes back to an earlier step."""
    return _job(list(zip([bad for bad, _ in kinds], sorted(step for _, step in kinds), strict=True)))


_KINDS = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=8)
_BOTH = st.randoms(use_true_random=False)


def _shuffled(history: list[Signal], random: Random) -> list[Signal]:
    """Any order, some read twice."""
    read = [*history, *(signal for signal in history if random.random() < 0.3)]
    random.shuffle(read)
    return read


@given(st.lists(st.booleans(), max_size=9).map(_node), _BOTH)
def test_the_episodes_of_a_node_are_the_same_in_any_order(history: list[Signal], random: Random) -> None:
    in_order, told_in_order = run(NODE_LOST, *history)
    watch, told = run(NODE_LOST, *_shuffled(history, random))
    assert _rounds(told) == _rounds(told_in_order)
    assert (watch.firing is None) == (in_order.firing is None)


@given(_KINDS.map(_forward), _BOTH)
def test_the_episodes_of_a_job_that_goes_forward_are_the_same_in_any_order(
    history: list[Signal], random: Random
) -> None:
    in_order, told_in_order = run(CHECKPOINT_FAILED, *history)
    watch, told = run(CHECKPOINT_FAILED, *_shuffled(history, random))
    assert _rounds(told) == _rounds(told_in_order)
    assert (watch.firing is None) == (in_order.firing is None)


@given(_KINDS.map(_job), _BOTH)
def test_of_any_job_no_episode_is_missed_and_the_last_state_is_true(history: list[Signal], random: Random) -> None:
    in_order, told_in_order = run(CHECKPOINT_FAILED, *history)
    watch, told = run(CHECKPOINT_FAILED, *_shuffled(history, random))
    assert _rounds(told) >= _rounds(told_in_order)
    assert (watch.firing is None) == (in_order.firing is None)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 500)), max_size=300).map(_job))
def test_what_is_kept_is_bounded_and_forgets_nothing_that_stands(history: list[Signal]) -> None:
    watch, effects = run(CHECKPOINT_FAILED, *history)
    closings = [closing.at for closing in watch.closings]
    standing = [one.at for one in watch.openings if not any(at.covers(one.at) for at in closings)]
    assert (watch.firing is not None) == bool(standing)
    for points in (closings, [one.at for one in watch.openings]):
        needed = [at for at in points if not any(other.covers(at) and other != at for other in points)]
        assert len(points) <= max(LIMIT, len(needed))
    _rounds(effects)
