"""The agent's decisions: whatever comes in whatever order, each attempt ends in exactly one `exited`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.attempts import MAX_POINTS, AttemptExited, ExitCause, ProgressPoint, Shard
from contracts.base import Tier
from contracts.jobs import CheckpointPolicy, JobKind, JobSpec, Member
from contracts.work import WorkRun
from services.agent.core.decide import MESSAGE_BYTES, decide, portions
from services.agent.core.model import (
    Attempt,
    AttemptKey,
    Claimed,
    Drained,
    Duty,
    Emit,
    Ended,
    Event,
    FellSilent,
    Inputs,
    NeverStarted,
    Offered,
    Phase,
    Prepared,
    PrepareFailed,
    ReadySaid,
    Record,
    Reported,
    Speaker,
    StopAsked,
    StopOrder,
    Stored,
    TaskEnded,
    TaskSeen,
    duty,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ME = Speaker("central-1", "00000000-0000-7000-8000-000000000001")
JOB = "00000000-0000-7000-8000-00000000000a"
KEY = AttemptKey(JOB, 2, 0)
RUN = WorkRun(
    job_id=JOB,
    tenant="acme",
    attempt=2,
    generation=2,
    member=0,
    members=[Member(index=0, node="central-1", tier=Tier.CENTRAL, cards=[0])],
    spec=JobSpec(
        job_id=JOB,
        tenant="acme",
        name="train",
        kind=JobKind.TRAINING,
        command=["python", "train.py"],
        max_runtime_s=600,
        seed=7,
        checkpoint=CheckpointPolicy(keep_last=2),
    ),
)
STOP = StopAsked(KEY, "acme", StopOrder(ExitCause.STOPPED, 5.0, "cancelled"))
OFFER = Offered(RUN, "127.0.0.1:4001")
YES = Claimed(granted=True, go=False, rendezvous=None, message="", epoch=1)
GO = Claimed(granted=True, go=True, rendezvous="127.0.0.1:4001", message="", epoch=2)
NO = Claimed(granted=False, go=False, rendezvous=None, message="attempt 3 is placed", epoch=1)
READY_TO_RUN = Prepared(Inputs("/cache/d", 40, "/restore/f"))
SEEN = TaskSeen(NOW)
SUCCESS = TaskEnded(Ended(ExitCause.COMPLETED, 0, "", NOW, NOW))
SAVED = Stored(40, Shard(member=0, uri="s3://farside/k", sha256="0" * 64, size_bytes=9), 12, 34)
POINTS = Reported([ProgressPoint(step=1, metrics={"loss": 0.5})], serial=1)
ALL_EVENTS: list[Event] = [
    OFFER,
    STOP,
    YES,
    GO,
    NO,
    READY_TO_RUN,
    PrepareFailed("artefact is damaged"),
    SEEN,
    SUCCESS,
    NeverStarted("no shim came"),
    POINTS,
    ReadySaid("127.0.0.1:80"),
    SAVED,
    FellSilent(9),
    Drained(),
]


def play(events: Sequence[Event], attempt: Attempt | None = None) -> tuple[Attempt | None, list[Emit]]:
    """The row after the events, and all messages sent."""
    sent: list[Emit] = []
    for number, event in enumerate(events):
        for effect in decide(attempt, event, ME, NOW + timedelta(seconds=number)):
            match effect:
                case Record(row):
                    attempt = row
                case Emit():
                    sent.append(effect)
    return attempt, sent


def names(sent: Sequence[Emit]) -> list[str]:
    return [emit.message.name for emit in sent]


def exited(sent: Sequence[Emit]) -> AttemptExited:
    body: Any = sent[-1].body
    assert isinstance(body, AttemptExited)
    return body


def test_the_straight_way() -> None:
    events = [OFFER, YES, READY_TO_RUN, YES, GO, SEEN, POINTS, SAVED, SUCCESS, Drained()]
    attempt, sent = play(events)
    assert names(sent) == ["started", "progressed", "saved", "exited"]
    assert [emit.sequence for emit in sent] == [1, 2, 3, 4]
    assert attempt is not None
    assert (attempt.phase, attempt.rendezvous, attempt.epoch) == (Phase.EXITED, "127.0.0.1:4001", 2)
    assert exited(sent).cause is ExitCause.COMPLETED
    saved: Any = sent[2].body
    assert (saved.binding.seed, saved.keep_last, saved.members) == (7, 2, 1)


def test_the_duty_follows_from_the_row() -> None:
    duties: list[Duty] = []
    attempt: Attempt | None = None
    for event in [OFFER, YES, READY_TO_RUN, GO, SEEN, SUCCESS, Drained()]:
        attempt, _ = play([event], attempt)
        assert attempt is not None
        duties.append(duty(attempt))
    assert duties == [Duty.CLAIM, Duty.PREPARE, Duty.CLAIM, Duty.SPAWN, Duty.WATCH, Duty.DRAIN, Duty.NONE]


def test_a_stop_before_its_offer_is_answered_at_once_and_the_offer_is_void() -> None:
    attempt, sent = play([STOP, OFFER, GO])
    assert names(sent) == ["exited"]
    assert exited(sent).cause is ExitCause.NEVER_STARTED
    assert "before it was offered: cancelled" in exited(sent).message
    assert attempt is not None
    assert attempt.run is None


def test_a_stop_before_the_spawn_means_no_start() -> None:
    for before in ([OFFER], [OFFER, YES], [OFFER, YES, READY_TO_RUN]):
        attempt, sent = play([*before, STOP, GO, SEEN])
        assert names(sent) == ["exited"]
        assert attempt is not None
        assert attempt.phase is Phase.EXITED


def test_a_stop_of_a_living_task_is_kept_for_the_shim_and_only_shortened() -> None:
    attempt, sent = play([OFFER, YES, READY_TO_RUN, GO, STOP])
    assert attempt is not None
    assert attempt.stop == STOP.order
    assert not sent
    longer = replace(STOP, order=StopOrder(ExitCause.STOPPED, 50.0, "again"))
    shorter = replace(STOP, order=StopOrder(ExitCause.STOPPED, 0.0, "now"))
    attempt, _ = play([SEEN, longer, shorter], attempt)
    assert attempt is not None
    assert attempt.stop == StopOrder(ExitCause.STOPPED, 0.0, "cancelled")


def test_refused_claims_and_failed_preparations_end_the_attempt() -> None:
    _, sent = play([OFFER, NO])
    assert exited(sent).message == "not claimed: attempt 3 is placed"
    _, sent = play([OFFER, YES, PrepareFailed("artefact is damaged")])
    assert (exited(sent).cause, exited(sent).exit_code) == (ExitCause.FAILED, None)
    _, sent = play([OFFER, YES, PrepareFailed("not in time", hopeless=False)])
    assert exited(sent).cause is ExitCause.NEVER_STARTED


def test_a_task_that_ended_before_it_was_seen_still_started() -> None:
    _, sent = play([OFFER, YES, READY_TO_RUN, GO, SUCCESS, Drained()])
    assert names(sent) == ["started", "exited"]
    never = TaskEnded(Ended(ExitCause.LEASE_EXPIRED, None, "", None, NOW))
    _, sent = play([OFFER, YES, READY_TO_RUN, GO, never, Drained()])
    assert names(sent) == ["exited"]


def test_silence_is_told_once_and_stops_the_task() -> None:
    attempt, sent = play([OFFER, YES, READY_TO_RUN, GO, SEEN, FellSilent(9), FellSilent(10)])
    assert names(sent) == ["started", "hung"]
    assert attempt is not None
    assert attempt.stop is not None
    assert attempt.stop.cause is ExitCause.HUNG


@given(st.lists(st.sampled_from(ALL_EVENTS), max_size=40))
def test_any_order_of_events_keeps_the_promises(events: list[Event]) -> None:
    attempt, sent = play(events)
    told = names(sent)
    assert told.count("exited") <= 1
    assert ("exited" in told) == (attempt is not None and attempt.phase is Phase.EXITED)
    assert told.count("started") <= 1
    if "exited" in told:
        assert told[-1] == "exited"
    for name in ("ready", "hung"):
        assert name not in told or told.index("started") < told.index(name)
    assert [emit.sequence for emit in sent] == list(range(1, len(sent) + 1))
    assert attempt is None or attempt.sequence == len(sent)


@given(st.lists(st.sampled_from(ALL_EVENTS), max_size=40))
def test_nothing_is_spawned_without_a_go(events: list[Event]) -> None:
    attempt: Attempt | None = None
    for event in events:
        before = attempt
        attempt, _ = play([event], attempt)
        was_spawning = before is not None and before.phase is Phase.SPAWNING
        if attempt is not None and attempt.phase is Phase.SPAWNING and not was_spawning:
            assert isinstance(event, Claimed)
            assert event.go
            assert before is not None
            assert before.phase is Phase.PREPARED


@given(st.lists(st.integers(0, 64), max_size=300), st.integers(1, 3))
def test_points_are_cut_into_messages_that_fit(widths: list[int], repeat: int) -> None:
    points = [
        ProgressPoint(step=n, metrics={f"m{'x' * 200}{k}": 1.0 / 3 for k in range(width)})
        for n, width in enumerate(widths * repeat)
    ]
    parts = list(portions(points))
    assert [point for part in parts for point in part] == points
    for part in parts:
        assert 1 <= len(part) <= MAX_POINTS
        assert sum(len(point.model_dump_json()) for point in part) < 2 * MESSAGE_BYTES
