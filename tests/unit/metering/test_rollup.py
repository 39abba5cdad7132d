"""How a closing is divided: every sample once, within bounds, the same however often it is planned."""

from collections import Counter
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from contracts.base import MAX_REPLY_BYTES, Tier
from contracts.usage import RollUpEntry, UsageItem, UsageRolledUp
from services.metering.core.rollup import MAX_ENTRIES, Planned, Share, plan
from tests.unit.metering.make import JOB_ID, START

CLOSE_ID = "01a22b77-0000-7000-8000-000000000999"
OTHER_ID = "01a22b77-0000-7000-8000-000000000998"
shares = st.lists(
    st.builds(
        Share,
        hour=st.integers(0, 3).map(lambda hours: START + timedelta(hours=hours)),
        job_id=st.sampled_from(["a", "b", "c", "d"]),
        accelerator=st.sampled_from(["H200", "A100"]),
        tier=st.sampled_from(list(Tier)),
        entries=st.integers(1, 3),
        samples=st.integers(1, 50),
    ),
    unique_by=lambda share: (share.hour, share.job_id, share.accelerator, share.tier),
    max_size=40,
)


def planned_of(found: list[Share]) -> list[Planned]:
    return plan(CLOSE_ID, found, max_entries=8, max_samples=100)


@given(shares)
def test_every_share_is_in_exactly_one_roll_up_of_its_hour(found: list[Share]) -> None:
    planned = planned_of(found)
    assert Counter(share for one in planned for share in one.shares) == Counter(found)
    assert all(share.hour == one.hour for one in planned for share in one.shares)
    assert all(one.samples == sum(share.samples for share in one.shares) for one in planned)


@given(shares)
def test_a_roll_up_is_within_its_bounds_or_of_one_share(found: list[Share]) -> None:
    for one in planned_of(found):
        entries = sum(share.entries for share in one.shares)
        assert (entries <= 8 and one.samples <= 100) or len(one.shares) == 1


@given(shares.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_mb5_the_same_closing_in_any_order_makes_the_same_roll_ups(orders: tuple[list[Share], list[Share]]) -> None:
    assert planned_of(orders[0]) == planned_of(orders[1])


@given(shares)
def test_no_two_roll_ups_of_any_closings_share_an_id(found: list[Share]) -> None:
    ids = [one.rollup_id for one in [*planned_of(found), *plan(OTHER_ID, found)]]
    assert len(set(ids)) == len(ids)


def test_parts_of_an_hour_are_counted_from_zero_in_each_hour() -> None:
    found = [Share(START + timedelta(hours=hour), job, "H200", "central", 5, 1) for hour in (0, 1) for job in "abc"]
    assert [one.part for one in planned_of(found)] == [0, 1, 2, 0, 1, 2]


def test_the_largest_roll_up_fits_into_a_reply() -> None:
    entry = RollUpEntry(
        job_id=JOB_ID,
        job_name="n" * 63,
        team="\x01" * 256,
        item=UsageItem.GPU_MEMORY_MIB_MS,
        accelerator="\x01" * 256,
        tier=Tier.CENTRAL,
        quantity=2**63 - 1,
        samples=2**63 - 1,
    )
    whole = UsageRolledUp(
        rollup_id=JOB_ID,
        close_id=CLOSE_ID,
        tenant="t" * 63,
        hour=START,
        number=1,
        entries=[entry] * MAX_ENTRIES,
        samples=1,
        extract="s3://bucket/" + "k" * 1024,
        sha256="c" * 64,
    )
    assert len(whole.model_dump_json().encode()) < MAX_REPLY_BYTES - 16 * 1024
