"""Who may restore, and from what."""

import pytest

from contracts.attempts import Binding
from contracts.jobs import DatasetRef
from services.checkpoint.core.model import Phase
from services.checkpoint.core.restoring import candidates, mismatch, overtaken, refuse_old
from tests.unit.checkpoint.make import BINDING, checkpoint, grant


def test_an_attempt_below_the_fence_is_refused() -> None:
    assert refuse_old(2, 2) is None
    assert refuse_old(1, 2) == "attempt 1 is fenced off: attempt 2 has taken the job over, this one must end"


def test_only_committed_checkpoints_are_candidates() -> None:
    all_phases = [checkpoint(1, step, phase) for step, phase in enumerate(Phase)]
    assert [one.phase for one in candidates(all_phases, [grant(1)])] == [Phase.COMMITTED]


def test_unfinished_saves_of_older_attempts_are_overtaken_and_intents_are_not() -> None:
    checkpoints = [
        checkpoint(1, 10, Phase.COLLECTING),
        checkpoint(1, 20, Phase.COMMITTING),
        checkpoint(2, 30, Phase.COLLECTING),
    ]
    assert [fail.checkpoint.place for fail in overtaken(checkpoints, 2)] == [(1, 10)]


def test_c3_the_same_binding_fits() -> None:
    assert mismatch(checkpoint(), BINDING, 1) is None
    assert mismatch(checkpoint(binding=Binding()), Binding(), 1) is None


@pytest.mark.parametrize(
    ("binding", "members", "words"),
    [
        (
            BINDING.model_copy(update={"dataset": DatasetRef(name="digits", version="v2")}),
            1,
            ["dataset version was digits:v1, is now digits:v2"],
        ),
        (BINDING.model_copy(update={"code_version": "b" * 64}), 1, [f"was {'a' * 64}, is now {'b' * 64}"]),
        (BINDING.model_copy(update={"seed": 0}), 1, ["seed was 7, is now 0"]),
        (BINDING.model_copy(update={"seed": None}), 1, ["seed was 7, is now none"]),
        (BINDING, 2, ["number of members was 1, is now 2"]),
        (Binding(), 1, ["dataset version", "code version", "seed"]),
    ],
)
def test_c3_what_differs_is_named_with_both_values(binding: Binding, members: int, words: list[str]) -> None:
    message = mismatch(checkpoint(), binding, members)
    assert message is not None
    assert all(word in message for word in words)
