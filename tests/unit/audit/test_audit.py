"""An invoice that is right is ok; whatever is altered on the way to it is found, and named."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.invoices import Invoice
from contracts.usage import RollUpEntry
from libs.audit import Difference, Reach
from libs.audit.amounts import check_amounts, recompute
from libs.audit.extracts import read_extract
from libs.audit.published import CLOSED
from services.billing.core.rating import Rated, make_invoice, rate
from tests.unit.audit.alterations import ALTERATIONS
from tests.unit.audit.make import (
    CARD,
    CUTOFF,
    MINUTE,
    START,
    World,
    book,
    elsewhere,
    message,
    more,
    pack,
    row,
    world,
)
from tests.unit.billing.make import closing, entry, rollup


def test_what_is_right_is_ok() -> None:
    found = world().audit()
    assert found.differences == []
    assert (found.ok, found.samples, found.measured, found.invoice) == (True, 20, 20, "acme-0001")
    assert found.recomputed_total_micro == found.invoice_total_micro > 0


@pytest.mark.parametrize(("alter", "named"), ALTERATIONS)
def test_an_alteration_is_found_and_named(alter: Callable[[World], None], named: str) -> None:
    made = world()
    alter(made)
    found = made.audit()
    assert not found.ok
    assert named in {each.what for each in found.differences}


@pytest.mark.parametrize("name", Invoice.model_fields)
def test_each_field_of_the_invoice_is_that_of_the_one_issued(name: str) -> None:
    made = world()
    value = getattr(made.invoice, name)
    other: object = f"{value}0" if isinstance(value, str) else value + (1 if isinstance(value, int) else MINUTE / 60)
    made.invoice = made.invoice.model_copy(update={name: other})
    found = {each.what for each in made.audit().differences}
    assert f"invoice's {name}" in found


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_of_the_closing_is_that_of_the_one_published(name: str) -> None:
    """Altered before it was issued."""
    made = world()
    value = getattr(made.invoice, name)
    other: object = f"{value}0" if isinstance(value, str) else value + (1 if isinstance(value, int) else MINUTE / 60)
    made.invoice = made.issued = made.invoice.model_copy(update={name: other})
    [where] = [each.where for each in made.audit().differences if each.what == f"invoice's {name}"]
    assert where == "billing's invoice and usage.period_closed"


def test_what_the_streams_no_longer_tell_is_said() -> None:
    made = world()
    made.issued = made.closed = None
    made.published.clear()
    made.placements.clear()
    since = CUTOFF + timedelta(days=40)
    made.reach = Reach(usage=since, jobs=since, invoices=since)
    made.measured.clear()
    found = made.audit()
    assert (found.ok, len(found.unreplayed), len(found.unchecked)) == (True, 20, 5)
    assert "the invoice as it was issued: the stream INVOICES reaches back to" in found.unchecked[0]
    assert f"node, cards and tier of job {row(0).job_id} attempt 1" in found.unchecked[3]


def test_a_sample_told_by_two_nodes_is_that_of_the_one_it_was_placed_on() -> None:
    made = world()
    assert made.audit(message(made.measured[0]).model_copy(update={"node": "liar-1"})).ok


def test_what_billing_and_metering_cannot_tell_is_in_the_differences_alone() -> None:
    made = world()
    made.lines = None
    made.raw.clear()
    made.origins.clear()
    fault = Difference(what="billing's lines", where="as they stand", expected="central", found="cloud")
    made.faults = [fault]
    assert made.audit().differences == [fault]


def test_a_sample_altered_before_the_close_is_found_by_the_replay() -> None:
    found = world(lambda rows: [more(rows[0]), *rows[1:]]).audit()
    [difference] = found.differences
    assert difference.what == "sample as it was measured"
    assert '"quantity":4893540000' in difference.expected
    assert '"quantity":4893540001' in difference.found
    assert found.measured == found.samples - 1


def test_a_sample_taken_out_before_the_close_is_found_by_the_replay() -> None:
    [difference] = world(lambda rows: rows[1:]).audit().differences
    assert (difference.what, difference.found.partition(":")[0]) == ("measured row", "nowhere")


def test_a_sample_that_nobody_measured_is_found() -> None:
    made = world()
    made.measured.pop()
    assert [each.what for each in made.audit().differences] == ["sample that was never measured"]


def test_a_row_that_is_kept_with_a_reason_is_explained() -> None:
    made = world()
    made.measured += [row(30), more(made.measured[0], 100)]
    made.refused += made.measured[-2:]
    assert made.audit().ok


def test_a_row_of_an_earlier_closing_is_explained() -> None:
    made = world()
    made.measured.append(row(-5))
    assert not made.audit().ok
    made.elsewhere.append(elsewhere(row(-5), later=False))
    found = made.audit()
    assert (found.ok, found.later, found.billed_later) == (True, 0, 0)


def test_a_row_measured_after_the_cutoff_is_none_of_this_invoice() -> None:
    made = world()
    made.late.append(row(130))
    assert made.audit().ok
    assert not world(lambda rows: [each for each in rows if each.job_id != row(1).job_id]).audit().ok


def test_a_row_heard_of_late_is_told_and_no_difference() -> None:
    made = world()
    made.measured.append(row(30))
    made.held.append(row(30))
    found = made.audit()
    assert (found.ok, found.later, found.billed_later) == (True, 1, 0)


def test_a_row_heard_of_late_and_billed_by_a_later_closing_is_not_awaited() -> None:
    made = world()
    made.measured.append(row(30))
    made.held.append(row(30))
    made.elsewhere.append(elsewhere(row(30), later=True))
    found = made.audit()
    assert (found.ok, found.later, found.billed_later) == (True, 0, 1)


def test_windows_beyond_the_stream_s_reach_are_told() -> None:
    made = world()
    made.measured = [each for each in made.measured if each.window_start >= START + timedelta(hours=1)]
    made.reach = Reach(usage=START + timedelta(hours=1))
    found = made.audit()
    assert (found.ok, found.measured, len(found.unreplayed)) == (True, 12, 8)
    made.reach = Reach(usage=START - timedelta(minutes=30))
    assert not made.audit().ok


def test_what_comes_twice_from_a_node_is_one_sample() -> None:
    made = world()
    made.measured += made.measured
    assert made.audit().ok


@pytest.mark.parametrize("data", [b"no gzip", pack([])[:4]])
def test_an_extract_that_cannot_be_read_says_so(data: bytes) -> None:
    assert (read_extract(data).fault or "").startswith("not readable")


ENTRIES = st.lists(
    st.builds(entry, st.integers(min_value=0, max_value=10**10), job=st.integers(min_value=1, max_value=5)),
    min_size=1,
    max_size=6,
)


@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_two_ways_of_computing_agree(hours: list[list[RollUpEntry]]) -> None:
    rollups = [rollup(*each, hour=START + timedelta(hours=index)) for index, each in enumerate(hours)]
    rated = rate(closing(*rollups), rollups, book())
    assert isinstance(rated, Rated)
    invoice = make_invoice(closing(*rollups), rated, invoice_id=rollups[0].rollup_id, number=1, issued_at=CUTOFF)
    assert list(check_amounts(invoice, rated.lines, recompute(rollups, CARD))) == []


def test_usage_that_this_release_cannot_price_is_said_to_have_no_price() -> None:
    storage = RollUpEntry(item="storage_mib_ms", quantity=1, samples=1)
    hour = rollup(entry(1), storage, hour=START)
    assert recompute([hour], CARD).unpriced == [f"storage_mib_ms None None {START.isoformat()}"]
