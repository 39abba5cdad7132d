"""GPU-hours to the millisecond, and what a tenant may never have."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import Priority, ReasonCode
from contracts.jobs import JobKind
from services.scheduler.core.quota import (
    CohortHours,
    Commitment,
    Holding,
    Quotas,
    Standing,
    Tenant,
    commit_ms,
    counted_ms,
    is_rolling,
    refusal,
)
from services.scheduler.core.words import MS_PER_HOUR, gpu_hours
from tests.unit.scheduler.builders import NOW, later, spec

HOUR = MS_PER_HOUR


def acme(hours: float = 50, cards: int = 8, jobs: int = 4, top: Priority = Priority.ONLINE) -> Tenant:
    return Tenant("acme", 1, Quotas(int(hours * HOUR), cards, jobs, top))


def test_the_refusal_tells_used_asked_and_allowed() -> None:
    asked = spec(resources={"cards": 2}, max_runtime_s=6 * 3600)
    reason = refusal(acme(50), asked, Standing(ended_ms=46 * HOUR), NOW)
    assert reason is not None
    assert reason.code is ReasonCode.QUOTA_EXCEEDED
    assert reason.message.startswith("tenant acme asks 12 GPU-hours, 4 left of 50 this month")
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("gpu_ms", 46 * HOUR, 12 * HOUR, 50 * HOUR)


def test_the_last_millisecond_fits_and_one_more_does_not() -> None:
    asked = spec(resources={"cards": 1}, max_runtime_s=3600)
    assert refusal(acme(50), asked, Standing(ended_ms=49 * HOUR), NOW) is None
    assert refusal(acme(50), asked, Standing(ended_ms=49 * HOUR + 1), NOW) is not None


def test_waiting_and_running_jobs_count_to_their_limit() -> None:
    running = Commitment(4 * HOUR, rolling=False, holdings=(Holding(2, later(-1800)),))
    assert counted_ms(Standing(live=(running,)), NOW) == 4 * HOUR
    assert counted_ms(Standing(ended_ms=5, queued_ms=7, live=(running,)), NOW) == 4 * HOUR + 12


def test_what_runs_over_its_limit_counts_as_long_as_it_runs() -> None:
    running = Commitment(HOUR, rolling=False, holdings=(Holding(1, later(-2 * 3600)),))
    assert counted_ms(Standing(live=(running,)), NOW) == 2 * HOUR


def test_inference_commits_a_day_ahead_beside_what_it_has_used() -> None:
    served = spec(kind="inference", resources={"cards": 1}, max_runtime_s=None)
    assert (commit_ms(served), is_rolling(served)) == (24 * HOUR, True)
    running = Commitment(commit_ms(served), rolling=True, holdings=(Holding(1, later(-3600)),))
    assert counted_ms(Standing(live=(running,)), NOW) == 25 * HOUR


def test_members_that_have_ended_are_counted_once() -> None:
    """Their time is part of what ended this month; it only lowers what the attempt may still use."""
    ended = Holding(1, later(-3600), later(-1800))
    running = Commitment(4 * HOUR, rolling=False, holdings=(ended, Holding(1, later(-3600))))
    standing = Standing(ended_ms=HOUR // 2, live=(running,))
    assert counted_ms(standing, NOW) == 4 * HOUR


def test_only_this_month_counts_as_used() -> None:
    now = datetime(2026, 4, 1, 0, 30, tzinfo=UTC)
    held = Holding(1, now - timedelta(hours=2))
    running = Commitment(5 * HOUR, rolling=False, holdings=(held,))
    assert counted_ms(Standing(live=(running,)), now) == HOUR // 2 + 3 * HOUR


def test_the_refusal_tells_when_it_would_fit() -> None:
    asked = spec(resources={"cards": 2}, max_runtime_s=6 * 3600)
    used = refusal(acme(50), asked, Standing(ended_ms=46 * HOUR), NOW)
    running = Commitment(45 * HOUR, rolling=False, holdings=(Holding(1, later(-3600)),))
    committed = refusal(acme(50), asked, Standing(live=(running,)), NOW)
    never = refusal(acme(11), asked, Standing(), NOW)
    served = Commitment(24 * HOUR, rolling=True, holdings=(Holding(1, later(-3600)),))
    turn = "it fits when the month turns (2026-04-01)"
    for_ever = refusal(acme(24), asked, Standing(live=(served,), ended_ms=24 * HOUR), NOW)
    assert [reason.message.split(": ")[1].split(";")[0] for reason in (used, committed, never, for_ever) if reason] == [
        turn,
        f"{turn}, sooner if running and waiting jobs leave enough of the 44 they may use",
        "it never fits",
        "it fits when the month has turned and what then still runs has ended",
    ]


def test_hours_are_borrowed_from_what_the_cohort_leaves_up_to_a_limit() -> None:
    asked = spec(resources={"cards": 1}, max_runtime_s=2 * 3600)
    tenant = Tenant("acme", 1, Quotas(10 * HOUR, 8, 4, Priority.ONLINE, borrow_gpu_ms=5 * HOUR))

    def allowed(counted: int, lenders: int) -> int | None:
        cohort = CohortHours("x", 30 * HOUR, counted + lenders)
        reason = refusal(tenant, asked, Standing(ended_ms=counted), NOW, cohort=cohort)
        return None if reason is None else reason.allowed

    assert allowed(9 * HOUR, 0) is None
    assert allowed(13 * HOUR, 15 * HOUR) is None
    assert allowed(13 * HOUR + 1, 0) == 15 * HOUR
    assert allowed(10 * HOUR, 19 * HOUR) == 11 * HOUR
    assert allowed(10 * HOUR, 40 * HOUR) == 10 * HOUR
    assert refusal(tenant, asked, Standing(ended_ms=9 * HOUR), NOW) is not None


@given(
    st.integers(1, 64),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_used_and_remaining_always_make_up_the_commitment(cards: int, commit_s: int, elapsed_ms: int) -> None:
    """SC18: exact milliseconds, nothing lost between used and committed, within one month."""
    commitment = cards * commit_s * 1000
    start = datetime(2026, 3, 1, tzinfo=UTC)
    now = start + timedelta(milliseconds=elapsed_ms)
    running = Commitment(commitment, rolling=False, holdings=(Holding(cards, start),))
    assert counted_ms(Standing(live=(running,)), now) == max(commitment, cards * elapsed_ms)


def test_more_cards_than_ever_allowed_is_refused() -> None:
    reason = refusal(acme(cards=8), spec(members=5), Standing(), NOW)
    assert reason is not None
    assert (reason.resource, reason.asked, reason.allowed) == ("cards", 10, 8)


def test_no_concurrent_job_at_all_is_refused() -> None:
    reason = refusal(acme(jobs=0), spec(), Standing(), NOW)
    assert reason is not None
    assert reason.resource == "jobs"


@pytest.mark.parametrize(
    ("top", "asked", "allowed"),
    [
        (Priority.ONLINE, Priority.ONLINE, True),
        (Priority.NORMAL, Priority.ONLINE, False),
        (Priority.NORMAL, Priority.BATCH, True),
        (Priority.BATCH, Priority.NORMAL, False),
    ],
)
def test_the_top_class(top: Priority, asked: Priority, *, allowed: bool) -> None:
    reason = refusal(acme(top=top), spec(priority=asked), Standing(), NOW)
    assert (reason is None) is allowed
    if reason is not None:
        assert reason.code is ReasonCode.PRIORITY_NOT_ALLOWED
        assert f"asks priority {asked}, its top class is {top}: " in reason.message


def test_a_class_that_follows_from_the_kind_is_told_as_such() -> None:
    reason = refusal(acme(top=Priority.NORMAL), spec(kind=JobKind.INFERENCE, priority=None), Standing(), NOW)
    assert reason is not None
    assert reason.message == (
        "tenant acme asks priority online by the job's kind, its top class is normal: ask for normal or lower"
    )


@pytest.mark.parametrize(
    ("ms", "text"), [(12 * HOUR, "12"), (HOUR // 2, "0.5"), (1, "0"), (50 * HOUR + 1, "50"), (0, "0")]
)
def test_hours_in_words(ms: int, text: str) -> None:
    assert gpu_hours(ms) == text
