"""Shards that nobody will name, and saves that nobody will complete."""

from datetime import timedelta

from services.checkpoint.core.model import Phase
from services.checkpoint.core.orphans import Stored, abandoned, sweep
from tests.unit.checkpoint.make import NOW, checkpoint, job, shard

KEEP_S = 3600.0


def stored(attempt: int, step: int, age_s: float = 2 * KEEP_S) -> Stored:
    return Stored(f"a{attempt}/s{step}", attempt, step, NOW - timedelta(seconds=age_s))


def test_old_shards_of_fenced_attempts_go_and_nothing_else() -> None:
    objects = [stored(1, 10), stored(1, 20), stored(1, 30, age_s=60), stored(2, 40)]
    plan = sweep(job(fence=2), objects, [checkpoint(1, 10)], NOW, KEEP_S, 100)
    assert plan.remove == ("a1/s20",)
    assert plan.again


def test_shards_of_what_is_on_its_way_stay() -> None:
    phases = [Phase.COLLECTING, Phase.COMMITTING, Phase.COMMITTED, Phase.EXPIRING]
    live = [checkpoint(1, step, phase) for step, phase in enumerate(phases)]
    plan = sweep(job(fence=9, finished=True), [stored(1, step) for step in range(4)], live, NOW, KEEP_S, 100)
    assert (plan.remove, plan.again) == ((), False)


def test_a_finished_job_leaves_no_orphans() -> None:
    plan = sweep(job(finished=True), [stored(1, 10), stored(1, 20)], [checkpoint(1, 20)], NOW, KEEP_S, 100)
    assert (plan.remove, plan.again) == (("a1/s10",), False)


def test_tc9_deletions_have_a_cap_and_the_oldest_go_first() -> None:
    objects = [stored(1, step, age_s=KEEP_S + 100 - step) for step in (30, 10, 20)]
    plan = sweep(job(fence=2), objects, [], NOW, KEEP_S, 2)
    assert (plan.remove, plan.again) == (("a1/s10", "a1/s20"), True)


def test_an_incomplete_save_is_given_up_once_its_attempt_is_over() -> None:
    begun = checkpoint(1, 10, Phase.COLLECTING, members=3, shards=(shard(1),), begun_at=NOW - timedelta(hours=2))
    young = checkpoint(1, 20, Phase.COLLECTING, members=3, shards=(), begun_at=NOW)
    assert abandoned(job(), [begun, young], NOW, KEEP_S) == []
    (fail,) = abandoned(job(finished=True), [begun, young], NOW, KEEP_S)
    assert "1 of 3 members saved, member 0 never reported" in fail.message
    (fail,) = abandoned(job(fence=2), [begun, young], NOW, KEEP_S)
    assert "attempt 2 has taken the job over" in fail.message
