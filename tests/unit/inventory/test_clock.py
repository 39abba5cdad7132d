"""The observed clock counts only what was watched, and never runs ahead of true time."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.inventory.core.clock import advance, between_ms, start_sequence
from services.inventory.core.model import Clock, Tick
from tests.unit.inventory.builders import T0, at

GAP_MS = 5_000
NEVER = Clock("", 0, T0, observed_ms=0, floor_ms=0)


def tick(sequence: int, stored_s: float, *, sent_s: float | None = None, stream: str = "one") -> Tick:
    sent_ms = round((stored_s if sent_s is None else sent_s) * 1000)
    return Tick(stream, sequence, at(stored_s), sent_ms, sent_ms)


def test_first_tick_starts_at_zero() -> None:
    assert advance(NEVER, tick(4, 100), None, GAP_MS) == Clock("one", 4, at(100), 0, 0)


def test_time_between_two_ticks_counts() -> None:
    first = advance(NEVER, tick(1, 0), None, GAP_MS)
    second = advance(first, tick(2, 1.5), tick(1, 0), GAP_MS)
    assert (second.observed_ms, second.floor_ms, second.read_sequence) == (1500, 0, 2)


def test_gap_counts_as_one_gap_at_most() -> None:
    first = advance(NEVER, tick(1, 0), None, GAP_MS)
    assert advance(first, tick(2, 3600), tick(1, 0), GAP_MS).observed_ms == GAP_MS


def test_restart_counts_nothing_and_keeps_what_was_observed() -> None:
    first = Clock("one", 7, at(0), observed_ms=90_000, floor_ms=10)
    assert advance(first, tick(9, 2), None, GAP_MS) == Clock("one", 9, at(2), 90_000, 10)


def test_new_stream_puts_the_floor_at_now() -> None:
    first = Clock("one", 7, at(0), observed_ms=90_000, floor_ms=10)
    second = advance(first, tick(1, 2, stream="two"), tick(7, 0), GAP_MS)
    assert second == Clock("two", 1, at(2), observed_ms=90_000, floor_ms=90_000)


def test_hub_clock_steps_do_not_count() -> None:
    first = advance(NEVER, tick(1, 0), None, GAP_MS)
    forward = advance(first, tick(2, 4, sent_s=1), tick(1, 0), GAP_MS)
    assert forward.observed_ms == 1000
    back = advance(forward, tick(3, -50, sent_s=2), tick(2, 4, sent_s=1), GAP_MS)
    assert back.observed_ms == 1000


def test_reading_goes_on_where_it_stopped_unless_the_stream_is_new() -> None:
    assert start_sequence(NEVER, "one") == 1
    assert start_sequence(Clock("one", 7, T0, 0, 0), "one") == 8
    assert start_sequence(Clock("one", 7, T0, 0, 0), "two") == 1


def test_between_ms_rounds_down() -> None:
    assert between_ms(T0, T0 + timedelta(microseconds=1999)) == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 3_000), st.integers(0, 3_000), st.integers(-9_000, 9_000)),
        min_size=1,
    )
)
def test_observed_never_exceeds_true_time(steps: list[tuple[int, int, int, int]]) -> None:
    now_ms, step_ms = 0, 0
    stored: list[int] = []
    clock = NEVER
    previous: Tick | None = None
    for sequence, (pause_ms, out_ms, back_ms, jump_ms) in enumerate(steps, start=1):
        sent_ms = now_ms + pause_ms
        stored.append(sent_ms + out_ms)
        now_ms = stored[-1] + back_ms
        step_ms += jump_ms
        mark = Tick("one", sequence, T0 + timedelta(milliseconds=stored[-1] + step_ms), sent_ms, now_ms)
        clock = advance(clock, mark, previous, GAP_MS)
        previous = mark
        assert clock.observed_ms <= stored[-1] - stored[0]
