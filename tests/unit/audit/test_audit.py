"""An invoice that is right is ok; whatever is altered on the way to it is found, and named."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.usage import RollUpEntry
from libs.audit.amounts import check_amounts, recompute
from libs.audit.extracts import read_extract
from services.billing.core.rating import Rated, make_invoice, rate
from tests.unit.audit.make import (
    CARD,
    CUTOFF,
    START,
    World,
    book,
    first_extract,
    more,
    other_entry,
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


def alter_measured(made: World) -> None:
    made.measured[3] = more(made.measured[3])


def alter_raw(made: World) -> None:
    rows = made.raw[made.rollups[1].rollup_id]
    rows[2] = more(rows[2], 5)


def remove_raw(made: World) -> None:
    made.raw[made.rollups[0].rollup_id].pop()


def alter_extract(made: World) -> None:
    rows = list(made.extracts[made.rollups[0].rollup_id].rows)
    first_extract(made, pack([more(rows[0]), *rows[1:]]))


def double_in_extract(made: World) -> None:
    rows = list(made.extracts[made.rollups[0].rollup_id].rows)
    first_extract(made, pack([rows[0], *rows]))


def cut_extract(made: World) -> None:
    first_extract(made, pack(made.raw[made.rollups[0].rollup_id])[:-9])


def sample_in_two_rollups(made: World) -> None:
    second = made.rollups[1].rollup_id
    taken = made.extracts[made.rollups[0].rollup_id].rows[0]
    made.extracts[second] = read_extract(pack([taken, *made.extracts[second].rows]))


def alter_line(made: World) -> None:
    made.lines[1] = made.lines[1].model_copy(update={"amount_micro": made.lines[1].amount_micro + 1})


def alter_quantity(made: World) -> None:
    made.lines[0] = made.lines[0].model_copy(update={"quantity": made.lines[0].quantity - 1})


def alter_price(made: World) -> None:
    made.lines[0] = made.lines[0].model_copy(update={"unit_price_micro": made.lines[0].unit_price_micro + 1})


def shift_cent(made: World) -> None:
    first, second = made.lines[0], made.lines[1]
    made.lines[0] = first.model_copy(update={"amount_minor": first.amount_minor + 1})
    made.lines[1] = second.model_copy(update={"amount_minor": second.amount_minor - 1})


def drop_line(made: World) -> None:
    made.lines.pop()


def alter_total(made: World) -> None:
    made.invoice = made.invoice.model_copy(update={"total_micro": made.invoice.total_micro + 1})


def alter_samples(made: World) -> None:
    made.invoice = made.invoice.model_copy(update={"samples": made.invoice.samples + 1})


def alter_rollup(made: World) -> None:
    made.rollups[0] = other_entry(made.rollups[0])


def alter_digest(made: World) -> None:
    made.rollups[0] = made.rollups[0].model_copy(update={"sha256": "0" * 64})


def alter_card(made: World) -> None:
    made.card_text = CARD.replace("3.141592", "3.141593")


def measure_more(made: World) -> None:
    made.measured.append(row(30))


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (alter_measured, "sample as it was measured"),
        (alter_raw, "sample since the close"),
        (remove_raw, "sample since the close"),
        (alter_extract, "extract's sha256"),
        (alter_extract, "sample as it was measured"),
        (double_in_extract, "extract's order"),
        (cut_extract, "extract"),
        (sample_in_two_rollups, "sample in more than one roll-up"),
        (sample_in_two_rollups, "sample's window"),
        (alter_line, "line's amount_micro"),
        (alter_quantity, "line's quantity"),
        (alter_price, "line"),
        (shift_cent, "line's amount_minor"),
        (drop_line, "lines"),
        (alter_total, "total_micro"),
        (alter_samples, "samples"),
        (alter_rollup, "roll-up since it was published"),
        (alter_rollup, "roll-up's quantity"),
        (alter_digest, "sha256 of the roll-ups"),
        (alter_card, "sha256 of the rate card"),
        (measure_more, "measured row"),
    ],
)
def test_an_alteration_is_found_and_named(alter: Callable[[World], None], named: str) -> None:
    made = world()
    alter(made)
    found = made.audit()
    assert not found.ok
    assert named in {each.what for each in found.differences}


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
    made.earlier.append(row(-5))
    assert made.audit().ok


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
    assert (found.ok, found.later) == (True, 1)


def test_windows_beyond_the_stream_s_reach_are_told() -> None:
    made = world()
    made.measured = [each for each in made.measured if each.window_start >= START + timedelta(hours=1)]
    made.reach = START + timedelta(hours=1)
    found = made.audit()
    assert (found.ok, found.measured, len(found.unreplayed)) == (True, 12, 8)
    made.reach = START - timedelta(minutes=30)
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
