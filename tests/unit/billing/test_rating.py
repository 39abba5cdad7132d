"""What a closing costs, and when it costs nothing yet (cases MB6, MB8, MB10, MB14, MB15)."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from contracts.base import INT64_MAX, Tier
from contracts.usage import RollUpEntry, UsageItem
from services.billing.core.cards import PriceItem
from services.billing.core.rating import rate
from tests.unit.billing.make import (
    GIB_HOUR,
    HOUR,
    HOUR_MS,
    JOB_ID,
    START,
    card,
    closing,
    entry,
    held,
    is_nothing,
    price,
    rated,
    rollup,
)

MEMORY = UsageItem.GPU_MEMORY_MIB_MS


def test_two_hours_at_two_fifty_are_five_dollars() -> None:
    found = rated([rollup(entry(2 * HOUR_MS, samples=120))], card(price(2_500_000)))
    [line] = found.lines
    assert (line.amount, line.amount_micro, line.amount_minor, line.unit) == ("5", 5_000_000, 500, "GPU hour")
    assert (found.total_micro, found.total_minor) == (5_000_000, 500)
    assert (line.samples, line.job_id, line.first_hour, line.last_hour) == (120, JOB_ID, START, START)


def test_what_this_release_cannot_price_holds_the_invoice() -> None:
    book = card(price(2_500_000))
    energy = entry(1).model_copy(update={"item": "gpu_energy_mj"})
    storage = RollUpEntry(item="storage_mib_ms", quantity=1, samples=1)
    of_no_job = entry(1).model_copy(update={"job_id": None})
    for strange in (energy, storage, of_no_job):
        assert f"{strange.item} of job {strange.job_id} cannot be priced" in held([rollup(entry(1), strange)], book)


def test_an_amount_is_rounded_once_at_the_line() -> None:
    """Each of three thirds of a millionth rounds to nothing; together they are one."""
    hours = [rollup(entry(1), hour=START + index * HOUR) for index in range(3)]
    found = rated(hours, card(price(1_200_000)))
    assert found.lines[0].amount_micro == 1
    assert found.lines[0].amount.startswith("0.000001")


def test_mb8_a_price_change_splits_the_line_at_its_hour() -> None:
    change = START + 2 * HOUR
    book = card(price(1_000_000, end=change), price(3_000_000, start=change))
    found = rated([rollup(entry(HOUR_MS), hour=START + index * HOUR) for index in range(4)], book)
    shown = [(line.unit_price_micro, line.quantity, line.first_hour, line.last_hour) for line in found.lines]
    assert shown == [
        (1_000_000, 2 * HOUR_MS, START, START + HOUR),
        (3_000_000, 2 * HOUR_MS, change, change + HOUR),
    ]
    assert found.total_micro == 8_000_000


def test_mb8_an_edit_that_leaves_the_price_makes_no_new_line() -> None:
    change = START + HOUR
    book = card(price(1_000_000, end=change), price(1_000_000, start=change))
    found = rated([rollup(entry(HOUR_MS), hour=START + index * HOUR) for index in range(3)], book)
    assert [line.quantity for line in found.lines] == [3 * HOUR_MS]


def test_mb6_late_usage_of_a_billed_hour_is_a_line_of_the_next_invoice() -> None:
    book = card(price(1_000_000))
    first = rated([rollup(entry(HOUR_MS))], book)
    late = rated([rollup(entry(HOUR_MS // 2), number=2)], book)
    assert first.total_micro + late.total_micro == 1_500_000
    assert late.lines[0].first_hour == first.lines[0].first_hour


def test_mb10_a_price_in_yen() -> None:
    found = rated([rollup(entry(HOUR_MS))], card(price(1_500_400_000), currency="JPY", exponent=0))
    assert (found.total_micro, found.total_minor, found.lines[0].amount_minor) == (1_500_400_000, 1_500, 1_500)


def test_mb14_a_month_costs_its_real_hours() -> None:
    """A GiB held all of February or March: 672 and 744 hours, not 730, and no day is taken for a month."""
    book = card(price(1_000, item=PriceItem.GPU_MEMORY_GIB_HOUR, start=START - timedelta(days=60)))
    for days, total in ((28, 672_000), (31, 744_000)):
        hours = [rollup(entry(GIB_HOUR, item=MEMORY), hour=START + index * HOUR) for index in range(days * 24)]
        assert rated(hours, book).total_micro == total


def test_mb15_each_item_has_the_price_of_its_own_unit() -> None:
    book = card(price(2_000_000), price(1_000, item=PriceItem.GPU_MEMORY_GIB_HOUR))
    found = rated([rollup(entry(HOUR_MS), entry(80 * GIB_HOUR, item=MEMORY))], book)
    shown = {line.item: (line.unit, line.amount) for line in found.lines}
    assert shown == {UsageItem.GPU_MS: ("GPU hour", "2"), MEMORY: ("GiB hour", "0.08")}
    assert "no price for gpu_memory_gib_hour" in held([rollup(entry(1, item=MEMORY))], card(price(2_000_000)))


def test_the_most_exact_price_wins() -> None:
    book = card(
        price(1, accelerator="*", tier="*"),
        price(2, accelerator="*", tier="remote"),
        price(3, accelerator="H100", tier="*"),
        price(4, accelerator="H100", tier="remote"),
    )
    for accelerator, tier, wanted in (
        ("A100", Tier.CENTRAL, 1),
        ("A100", Tier.REMOTE, 2),
        ("H100", Tier.CENTRAL, 3),
        ("H100", Tier.REMOTE, 4),
    ):
        [line] = rated([rollup(entry(HOUR_MS, accelerator=accelerator, tier=tier))], book).lines
        assert line.unit_price_micro == wanted


def test_a_more_exact_price_that_is_over_gives_way() -> None:
    book = card(price(1), price(9, accelerator="H100", end=START + HOUR))
    found = rated([rollup(entry(HOUR_MS, tier=Tier.SHARED), hour=START + index * HOUR) for index in range(2)], book)
    assert [line.unit_price_micro for line in found.lines] == [9, 1]


def test_an_hour_without_a_price_holds_all_of_it() -> None:
    hours = [rollup(entry(HOUR_MS), hour=START + index * HOUR) for index in range(2)]
    message = held(hours, card(price(1, end=START + HOUR)))
    assert "no price for gpu_hour on H100 in tier central at 2026-03-01T01:00Z" in message
    assert "rate card standard version 1" in message


def test_no_card_for_the_tenant_holds() -> None:
    assert "no rate card is for tenant acme" in held([rollup(entry(1))], None)


def test_nothing_used_makes_no_invoice() -> None:
    assert is_nothing([], None)


def test_roll_ups_that_are_not_those_of_the_closing_hold() -> None:
    good = rollup(entry(1), rollup_id=1)
    other = good.model_copy(update={"samples": 2})
    outcome = rate(closing(good), [other], card(price(1)))
    assert "1 roll-ups with 1 samples, kept are 1 with 2" in str(outcome)
    extra = rollup(entry(1), rollup_id=2)
    assert "kept are 2 with 2" in str(rate(closing(good), [good, extra], card(price(1))))


def test_more_than_can_be_told_holds() -> None:
    assert "close more often" in held([rollup(entry(INT64_MAX))], card(price(10**18)))


ENTRIES = st.builds(
    entry,
    st.integers(min_value=0, max_value=10**9),
    job=st.integers(min_value=1, max_value=4),
    item=st.sampled_from(UsageItem),
    tier=st.sampled_from(Tier),
    samples=st.integers(min_value=1, max_value=9),
)
HOURS = st.lists(st.lists(ENTRIES, min_size=1, max_size=4), min_size=1, max_size=12)
BOOK = card(
    price(333_333, end=START + 3 * HOUR),
    price(777_777, start=START + 3 * HOUR),
    price(1_001, item=PriceItem.GPU_MEMORY_GIB_HOUR),
)


@given(HOURS, st.permutations(range(12)))
def test_mb9_the_order_in_which_roll_ups_come_changes_nothing(hours: list[list[RollUpEntry]], order: list[int]) -> None:
    made = [rollup(*each, hour=START + index * HOUR) for index, each in enumerate(hours)]
    found = rated(made, BOOK)
    assert rated([made[index] for index in order if index < len(made)], BOOK) == found
    assert sum(line.amount_micro for line in found.lines) == found.total_micro
    assert sum(line.amount_minor for line in found.lines) == found.total_minor
    assert sum(line.samples for line in found.lines) == sum(each.samples for each in made)
