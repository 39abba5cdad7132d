"""Reports of members: who completes a save, who is fenced off, who contradicts whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.attempts import AttemptSaved, Shard
from contracts.checkpoints import CheckpointFailure
from services.checkpoint.core.model import Checkpoint, Fail, Keep, KeepShard, Phase
from services.checkpoint.core.saving import Known, in_trouble, take
from tests.unit.checkpoint.make import BINDING, NOW, checkpoint, job, saved, shard, unsaved


def known(reported: int, own: Shard | None = None, members: int = 2, phase: Phase = Phase.COLLECTING) -> Known:
    return Known(checkpoint(phase=phase, members=members, decided_at=None, shards=()), reported, own)


def test_the_only_member_completes_the_save() -> None:
    keep, report = take(job(), None, saved(), NOW)
    assert isinstance(keep, Keep)
    assert isinstance(report, KeepShard)
    assert (keep.checkpoint.phase, keep.checkpoint.decided_at) == (Phase.COMMITTING, NOW)


def test_the_first_of_two_does_not() -> None:
    keep, _ = take(job(), None, saved(members=2), NOW)
    assert isinstance(keep, Keep)
    assert (keep.checkpoint.phase, keep.checkpoint.decided_at) == (Phase.COLLECTING, None)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.COLLECTING])
def test_a_report_of_a_save_that_is_decided_changes_nothing(phase: Phase) -> None:
    assert take(job(), known(2, phase=phase), saved(members=2), NOW) == ()


def test_a_report_that_comes_twice_changes_nothing() -> None:
    assert take(job(), known(1, shard(0)), saved(members=2), NOW) == ()


def test_an_older_attempt_is_refused_in_words_also_halfway() -> None:
    for before in (None, known(1)):
        (fail,) = take(job(fence=3), before, saved(attempt=1, member=1, members=2), NOW)
        assert isinstance(fail, Fail)
        assert (fail.checkpoint.phase, fail.cause) == (Phase.FAILED, CheckpointFailure.FENCED)
        assert fail.message.startswith("attempt 1 may not commit step 10: attempt 3 has taken the job over")


@pytest.mark.parametrize(
    ("before", "report", "words"),
    [
        (known(1), saved(member=1, members=3), "counts 3 members, others counted 2"),
        (known(1), saved(member=1, members=2, binding=BINDING.model_copy(update={"seed": 9})), "is bound to"),
        (known(1, shard(0, "1")), saved(members=2), "reported SHA-256 1"),
        (None, saved(member=2, members=2), "there are 2 members"),
    ],
)
def test_a_contradiction_ends_the_save_and_says_which(before: Known | None, report: AttemptSaved, words: str) -> None:
    (fail,) = take(job(), before, report, NOW)
    assert isinstance(fail, Fail)
    assert fail.cause is CheckpointFailure.CONFLICT
    assert words in fail.message


def test_keep_last_of_nothing_never_gets_here() -> None:
    with pytest.raises(AssertionError, match="would keep nothing"):
        take(job(), None, saved().model_copy(update={"keep_last": 0}), NOW)


@given(members=st.integers(1, 5), data=st.data())
def test_a_save_completes_exactly_when_every_member_has_reported(members: int, data: st.DataObject) -> None:
    """Any order, any repetition."""
    reports = data.draw(st.lists(st.integers(0, members - 1), max_size=20))
    current: Checkpoint | None = None
    shards: dict[int, Shard] = {}
    for member in reports:
        before = None if current is None else Known(current, len(shards), shards.get(member))
        for effect in take(job(), before, saved(member=member, members=members), NOW):
            match effect:
                case Keep(changed):
                    current = changed
                case KeepShard(_, reported):
                    assert reported.member not in shards
                    shards[reported.member] = reported
                case _:
                    raise AssertionError(effect)
        done = set(reports[: reports.index(member) + 1]) | set(shards)
        assert current is not None
        assert (current.phase is Phase.COMMITTING) == (done == set(range(members)))


@pytest.mark.parametrize("phase", [None, *Phase])
def test_a_failed_upload_is_trouble_while_its_save_may_still_become_a_checkpoint(phase: Phase | None) -> None:
    known = None if phase is None else checkpoint(phase=phase)
    assert in_trouble(job(), known, unsaved()) == (phase in {None, Phase.COLLECTING})
    assert not in_trouble(job(fence=2), known, unsaved())
    assert not in_trouble(job(finished=True), known, unsaved())
