"""One alteration each of what makes an invoice, and the difference by which it is found."""

from collections.abc import Callable

from contracts.base import Tier
from libs.audit import Placement, identity
from libs.audit.extracts import read_extract
from tests.unit.audit.make import CARD, World, elsewhere, first_extract, more, other_entry, pack, placed, row


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
    line = made.kept_lines[1]
    made.kept_lines[1] = line.model_copy(update={"amount_micro": line.amount_micro + 1})


def alter_quantity(made: World) -> None:
    made.kept_lines[0] = made.kept_lines[0].model_copy(update={"quantity": made.kept_lines[0].quantity - 1})


def alter_price(made: World) -> None:
    line = made.kept_lines[0]
    made.kept_lines[0] = line.model_copy(update={"unit_price_micro": line.unit_price_micro + 1})


def shift_cent(made: World) -> None:
    first, second = made.kept_lines[0], made.kept_lines[1]
    made.kept_lines[0] = first.model_copy(update={"amount_minor": first.amount_minor + 1})
    made.kept_lines[1] = second.model_copy(update={"amount_minor": second.amount_minor - 1})


def drop_line(made: World) -> None:
    made.kept_lines.pop()


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


def never_issued(made: World) -> None:
    made.issued = None


def never_closed(made: World) -> None:
    made.closed = None


def never_rolled_up(made: World) -> None:
    del made.published[made.rollups[0].rollup_id]


def drop_rollup(made: World) -> None:
    made.rollups.pop()


def replace_extract_and_digest(made: World) -> None:
    """An extract of other rows with its digest, in metering's own books too."""
    rollup = made.rollups[0]
    rows = [more(made.extracts[rollup.rollup_id].rows[0]), *made.extracts[rollup.rollup_id].rows[1:]]
    first_extract(made, pack(rows))
    digest = made.extracts[rollup.rollup_id].sha256
    made.rollups[0] = other_entry(rollup).model_copy(update={"sha256": digest})
    made.raw[rollup.rollup_id] = rows


def billed_by_a_later_closing(made: World) -> None:
    made.elsewhere.append(elsewhere(made.measured[2], later=True))


def billed_by_an_earlier_closing(made: World) -> None:
    made.elsewhere.append(elsewhere(more(made.measured[2]), later=False))


def origin(made: World, **changes: str | None) -> None:
    key = identity(made.measured[4])
    made.origins[key] = made.origins[key].model_copy(update=changes)


def forget_close(made: World) -> None:
    origin(made, close_id=None)


def alter_kept_tier(made: World) -> None:
    origin(made, tier="cloud")


def alter_kept_node(made: World) -> None:
    origin(made, node="remote-1")


def alter_tier(made: World) -> None:
    """In the roll-up, as it was published too: only the placement knows better."""
    rollup = made.rollups[0]
    entries = [rollup.entries[0].model_copy(update={"tier": Tier.REMOTE}), *rollup.entries[1:]]
    made.rollups[0] = made.published[rollup.rollup_id] = rollup.model_copy(update={"entries": entries})


def place(made: World, placement: Placement) -> None:
    made.placements[made.measured[0].job_id, 1] = placement


def place_on_another_node(made: World) -> None:
    place(made, placed(node="remote-1"))


def place_on_other_cards(made: World) -> None:
    place(made, placed(cards=[3]))


def place_on_another_model(made: World) -> None:
    place(made, placed(accelerator="a100"))


def place_no_such_member(made: World) -> None:
    place(made, Placement("acme", {}))


def place_for_another_tenant(made: World) -> None:
    place(made, Placement("globex", placed().members))


def never_placed(made: World) -> None:
    made.placements.clear()


ALTERATIONS: list[tuple[Callable[[World], None], str]] = [
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
    (never_issued, "invoice that was never issued"),
    (never_closed, "closing that was never published"),
    (never_rolled_up, "roll-up since it was published"),
    (drop_rollup, "roll-up since it was published"),
    (replace_extract_and_digest, "roll-up since it was published"),
    (replace_extract_and_digest, "sample as it was measured"),
    (billed_by_a_later_closing, "sample in another closing"),
    (billed_by_an_earlier_closing, "sample in another closing"),
    (forget_close, "sample's close_id"),
    (alter_kept_tier, "sample's tier"),
    (alter_kept_node, "sample's node"),
    (alter_tier, "roll-up's tiers"),
    (place_on_another_node, "sample's node"),
    (place_on_other_cards, "sample's card"),
    (place_on_another_model, "sample's accelerator"),
    (place_no_such_member, "sample's member"),
    (place_for_another_tenant, "placement's tenant"),
    (never_placed, "attempt that was never placed"),
]
