"""Held time cut into windows: nothing twice, nothing lost, whenever and in whatever order the meter looks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.base import Tier
from contracts.usage import MAX_ROWS, UsageItem, UsageRow
from services.agent.core import usage
from services.agent.core.model import AttemptKey
from services.agent.core.usage import HeldCard, Hold, Window
from services.agent.settings import AgentSettings
from services.metering.core import judge
from services.metering.core.model import Limits, Measured, Placement, Sample, Seat

JOBS = [f"00000000-0000-7000-8000-{n:012d}" for n in range(4)]
CARD = HeldCard(0, "GPU-0", "A100", 81920)
PERIOD_MS = 60_000
NOW = 1_790_000_000_000

periods = st.sampled_from([1000, 4000, 60_000, 3_600_000])
lengths = st.integers(0, 600_000)


def hold(number: int = 0, start: int = NOW, cards: int = 1, end: int | None = None) -> Hold:
    held = tuple(replace(CARD, index=index, uuid=f"GPU-{index}") for index in range(cards))
    return Hold(AttemptKey(JOBS[number], 1, 0), "acme", held, start, start, end)


def identity(row: UsageRow) -> tuple[object, ...]:
    return (row.job_id, row.attempt, row.member, row.card, row.item, row.window_start)


def moved(holds: Sequence[Hold], taken: Sequence[Window]) -> list[Hold]:
    """The holds after their windows are told."""
    done = usage.metered(taken)
    return [replace(one, metered_to=done.get(one.key, one.metered_to)) for one in holds]


def look(holds: Sequence[Hold], now: int, period_ms: int, limit: int) -> tuple[list[Hold], list[UsageRow]]:
    """One look of the meter."""
    reach = {one: usage.measurable(one, now, period_ms, None, alive=True) for one in holds}
    taken = usage.windows(reach, period_ms, limit)
    return moved(holds, taken), [row for window in taken for row in usage.rows(window)]


def told(rows: Sequence[UsageRow], key: AttemptKey, item: UsageItem) -> int:
    return sum(row.quantity for row in rows if row.job_id == key.job_id and row.item is item)


@given(lengths, periods, st.lists(st.integers(0, 700_000), max_size=12), st.integers(1, 5), st.integers(0, 10**7))
def test_windows_share_out_held_time_exactly(
    length: int, period_ms: int, looks: list[int], limit: int, start: int
) -> None:
    begun = NOW + start
    one, rows = hold(0, begun, cards=2), list[UsageRow]()
    for at in sorted(looks):
        [one], found = look([one], begun + min(at, length), period_ms, limit)
        rows += found
    one = replace(one, held_to=begun + length)
    while one.metered_to < begun + length:
        [one], found = look([one], begun + length, period_ms, limit)
        rows += found
    assert told(rows, one.key, UsageItem.GPU_MS) == 2 * length
    assert told(rows, one.key, UsageItem.GPU_MEMORY_MIB_MS) == 2 * length * 81920
    assert len({identity(row) for row in rows}) == len(rows)
    first = sorted((row for row in rows if row.card == 0 and row.item is UsageItem.GPU_MS), key=identity)
    for row, after in pairwise(first):
        assert row.window_end == after.window_start, "half-open, without a gap"
    for row in rows:
        begins, ends = usage.to_ms(row.window_start), usage.to_ms(row.window_end)
        assert begins < ends <= begins - begins % period_ms + period_ms, "within one window of the grid"
        assert begins == begun or begins % period_ms == 0


@given(st.integers(1, 1000), st.integers(1, 10 * PERIOD_MS), st.integers(0, PERIOD_MS))
def test_a_share_is_measured_in_quantities_that_metering_takes(share: int, length: int, into: int) -> None:
    begun = NOW - NOW % PERIOD_MS + into
    one = replace(hold(0, begun, end=begun + length), cards=(replace(CARD, share_milli=share),))
    rows = [row for window in usage.windows({one: begun + length}, PERIOD_MS, 100) for row in usage.rows(window)]
    seat = Seat("central-1", Tier.CENTRAL, frozenset({0}), CARD.model, CARD.memory_mib, share)
    placement = Placement("acme", {0: seat}, rows[0].window_start)
    for row in rows:
        grid = usage.to_time(usage.to_ms(row.window_start) // PERIOD_MS * PERIOD_MS)
        said = Measured(row, "agent", "m-1", 0, "central-1", PERIOD_MS // 1000, grid, row.window_end, None)
        found = judge.judge(said, placement, Limits(ahead_s=300, late_s=3600))
        assert isinstance(found, Sample), found
    parts = [row.window_end - row.window_start for row in rows if row.item is UsageItem.GPU_MS]
    owed = share * length // 1000
    assert owed - len(parts) < told(rows, one.key, UsageItem.GPU_MS) <= owed, "rounded down in each window"


@given(st.lists(st.tuples(lengths, lengths), min_size=4, max_size=4), periods, st.permutations(range(4)))
def test_the_order_of_holds_does_not_matter(times: list[tuple[int, int]], period_ms: int, order: list[int]) -> None:
    holds = [hold(number, NOW + start, end=NOW + start + length) for number, (start, length) in enumerate(times)]
    mixed = [holds[number] for number in order]
    reach: Mapping[Hold, int] = {one: usage.measurable(one, NOW, period_ms, None, alive=False) for one in holds}
    other = {one: reach[one] for one in mixed}
    assert usage.windows(reach, period_ms, 10**6) == usage.windows(other, period_ms, 10**6)


def test_one_window_holds_the_pieces_of_all_and_the_oldest_come_first() -> None:
    start = NOW - NOW % PERIOD_MS
    early, late = hold(0, start + 10), hold(1, start + PERIOD_MS + 5)
    end = start + 3 * PERIOD_MS
    first, second = usage.windows({late: end, early: end}, PERIOD_MS, 2)
    assert (first.start, second.start) == (start, start + PERIOD_MS)
    assert [(piece.hold, piece.start) for piece in first.pieces] == [(early, start + 10)]
    assert [(piece.hold, piece.start) for piece in second.pieces] == [
        (early, start + PERIOD_MS),
        (late, start + PERIOD_MS + 5),
    ]
    assert usage.metered([first, second]) == {early.key: second.pieces[0].end, late.key: second.pieces[1].end}


def test_a_hold_is_measured_to_the_last_full_window_while_it_lives_and_to_its_end_then() -> None:
    start = NOW - NOW % PERIOD_MS
    one = hold(0, start + 10)
    assert usage.measurable(one, start + PERIOD_MS - 1, PERIOD_MS, None, alive=True) == start + 10
    assert usage.measurable(one, start + PERIOD_MS, PERIOD_MS, None, alive=True) == start + PERIOD_MS
    assert usage.measurable(one, start + 5 * PERIOD_MS, PERIOD_MS, None, alive=False) == start + 10
    assert usage.measurable(replace(one, held_to=start + 77), start, PERIOD_MS, None, alive=False) == start + 77


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.booleans())
def test_the_end_is_never_beyond_now_and_never_before_what_is_told(
    ended: int,
    began: int,
    since: int,
    unseen: bool,  # noqa: FBT001 - hypothesis gives it
) -> None:
    one = replace(hold(), metered_to=NOW + 1000)
    now = NOW + 1000 + since
    end = usage.end_of(one, NOW + ended, NOW + began, now, unseen=unseen)
    assert one.metered_to <= end <= now
    if unseen:
        assert end == one.metered_to
    elif ended >= began:
        assert end == now


@given(st.integers(0, 10**6), st.none() | st.integers(-(10**6), 2 * 10**6))
def test_no_hold_goes_on_when_its_lease_has_run_out(end: int, lapse: int | None) -> None:
    free, bound = hold(), replace(hold(), epoch=1)
    lapse_ms = None if lapse is None else NOW + lapse
    assert usage.bounded(free, NOW + end, lapse_ms) == NOW + end
    assert usage.bounded(bound, NOW + end, lapse_ms) == (NOW if lapse is None else NOW + max(0, min(end, lapse)))


def test_a_clock_put_back_a_little_makes_no_overlap_and_a_wrong_one_heals() -> None:
    assert usage.floor_of_idle(NOW, None) is None
    assert usage.floor_of_idle(NOW, NOW + 50) == NOW + 50
    assert usage.floor_of_idle(NOW, NOW + 3_600_000) is None
    assert usage.offset(NOW, 1000, NOW + 50) == NOW + 50 - 1000
    assert usage.offset(NOW, 1000, NOW - 50) == NOW - 1000


@given(st.integers(0, 40), st.integers(1, 64))
def test_rows_are_cut_into_messages_that_fit(pieces: int, cards: int) -> None:
    start = NOW - NOW % PERIOD_MS
    long = tuple(HeldCard(index, "u" * 256, "m" * 256, 81920) for index in range(cards))
    window = Window(start, tuple(usage.Piece(replace(hold(), cards=long), start, start + 9) for _ in range(pieces)))
    rows = list(usage.rows(window))
    parts = list(usage.portions(iter(rows)))
    assert [row for part in parts for row in part] == rows
    for part in parts:
        assert 1 <= len(part) <= MAX_ROWS
        assert sum(len(row.model_dump_json()) for row in part) <= usage.ROWS_BYTES


def test_a_period_that_does_not_divide_the_hour_is_refused(tmp_path: object) -> None:
    for period_s in (0, 7, 7200):
        with pytest.raises(ValidationError, match="usage_period_s"):
            AgentSettings.model_validate({"node": "n", "state_dir": str(tmp_path), "usage_period_s": period_s})
    settings = AgentSettings.model_validate({"node": "n", "state_dir": str(tmp_path), "usage_period_s": 4})
    assert settings.usage_period_s == 4
