"""Whether a measured row counts. Pure: the row, its message, its attempt's placement in; a sample or a refusal out.

What the row says of itself is looked at first, then what it claims of the attempt, so that garbage about an attempt
never heard of does not wait for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from contracts.usage import RowFault, UsageItem, UsageRow
from services.metering.core.model import Identity, Limits, Measured, Placement, Refused, Sample, Seat, identity

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOUR_S = 3600
MAX_CARD_MIB = 16 * 1024 * 1024  # far above any card; a quantity beyond it is no memory


def held_ms(row: UsageRow) -> int:
    """The row's window in milliseconds."""
    return (row.window_end - row.window_start) // MS


def gpu_ms(row: UsageRow) -> int:
    """Card-milliseconds that the row stands for; 0 for items other than that."""
    return row.quantity if row.item is UsageItem.GPU_MS else 0


def judge(measured: Measured, placement: Placement | None, limits: Limits) -> Sample | Refused:
    """A sample, or a refusal with the first fault that is found."""
    fault = _itself(measured, limits)
    if fault is not None:
        return Refused(measured, *fault)
    row = measured.row
    if placement is None:
        words = f"attempt {row.attempt} of job {row.job_id} was never placed, as far as is known"
        return Refused(measured, RowFault.UNKNOWN_ATTEMPT, words)
    fault = _claimed(measured, placement) or _too_early(row, placement.placed_at, limits)
    if fault is not None:
        return Refused(measured, *fault)
    if placement.fenced_at is not None and row.window_start >= placement.fenced_at:
        return fenced(measured, placement.fenced_at)
    return Sample(measured, placement.seats[row.member].tier)


def fenced(measured: Measured, at: datetime) -> Refused:
    """A row of an attempt that had its last effects before its window began."""
    row = measured.row
    words = (
        f"attempt {row.attempt} of job {row.job_id} had its last effects by {at.isoformat()}: it is billed up to then"
    )
    return Refused(measured, RowFault.FENCED, words)


def _itself(measured: Measured, limits: Limits) -> tuple[RowFault, str] | None:
    row = measured.row
    words = _window(measured)
    if words is not None:
        return RowFault.WRONG_WINDOW, words
    fault = _quantity(row)
    if fault is not None:
        return fault
    ahead_s = (row.window_end - measured.stored_at).total_seconds()
    if ahead_s > limits.ahead_s:
        end, stored = row.window_end.isoformat(), measured.stored_at.isoformat()
        words = f"the window ends at {end}, {ahead_s:.0f} s after it was stored ({stored}): set the node's clock"
        return RowFault.CLOCK_JUMP, words
    if -ahead_s > limits.late_s:
        words = f"the window ended {-ahead_s:.0f} s before it was stored, more than {limits.late_s:.0f} s"
        return RowFault.CLOCK_JUMP, words
    return None


def _window(measured: Measured) -> str | None:
    row, begin, period = measured.row, measured.window_start, timedelta(seconds=measured.period_s)
    if HOUR_S % measured.period_s:
        return f"a period of {measured.period_s} s does not divide the hour: a window would lie in two"
    if (begin - EPOCH) % period:
        return f"the message's window begins at {begin.isoformat()}, off the grid of {measured.period_s} s"
    if row.window_end <= row.window_start:
        return f"the window ends at {row.window_end.isoformat()}, not after it begins"
    if row.window_start < begin or row.window_end - begin > period:
        shown = f"{row.window_start.isoformat()} to {row.window_end.isoformat()}"
        return f"{shown} is not inside the message's window, {begin.isoformat()} and {measured.period_s} s on"
    if (row.window_start - EPOCH) % MS or (row.window_end - EPOCH) % MS:
        return f"the window from {row.window_start.isoformat()} is not cut at whole milliseconds"
    return None


def _quantity(row: UsageRow) -> tuple[RowFault, str] | None:
    held = row.share_milli * held_ms(row)
    match row.item:
        case UsageItem.GPU_MS:
            right = row.quantity == held // 1000
        case UsageItem.GPU_MEMORY_MIB_MS:
            right = row.quantity % max(1, held // 1000) == 0 and row.quantity <= MAX_CARD_MIB * held // 1000
        case _:
            return RowFault.UNKNOWN_ITEM, f"{row.item} is no item that this release can check: run a newer metering"
    if right:
        return None
    words = f"{row.quantity} {row.item} is not what {held_ms(row)} ms at a share of {row.share_milli} make"
    return RowFault.WRONG_QUANTITY, words


def _claimed(measured: Measured, placement: Placement) -> tuple[RowFault, str] | None:
    row, seat = measured.row, placement.seats.get(measured.row.member)
    whom = f"attempt {row.attempt} of job {row.job_id}"
    if row.tenant != placement.tenant:
        return RowFault.TENANT_MISMATCH, f"{whom} is tenant {placement.tenant}'s, the row says {row.tenant}"
    if seat is None:
        return RowFault.CARD_NOT_HELD, f"{whom} has no member {row.member}"
    if seat.node != measured.node:
        return RowFault.NODE_MISMATCH, f"member {row.member} of {whom} is on {seat.node}, not on {measured.node}"
    if row.card not in seat.cards:
        held = ", ".join(map(str, sorted(seat.cards))) or "none"
        return RowFault.CARD_NOT_HELD, f"member {row.member} of {whom} never held card {row.card}: it holds {held}"
    words = _other_card(row, seat)
    return None if words is None else (RowFault.CARD_NOT_HELD, f"member {row.member} of {whom} {words}")


def _other_card(row: UsageRow, seat: Seat) -> str | None:
    """Why the row cannot be of a card like those, or of as much of one, as the member was given: it sets the price."""
    if seat.accelerator is not None and row.accelerator.casefold() != seat.accelerator.casefold():
        return f"was given cards of model {seat.accelerator}, the row says {row.accelerator}"
    if row.share_milli > seat.share_milli:
        return f"was given {seat.share_milli} thousandths of a card, the row says {row.share_milli}"
    if row.item != UsageItem.GPU_MEMORY_MIB_MS or seat.card_memory_mib is None:
        return None
    memory_mib = row.quantity // max(1, row.share_milli * held_ms(row) // 1000)
    if memory_mib > seat.card_memory_mib:
        return f"was given cards of {seat.card_memory_mib} MiB at most, the row makes {memory_mib}"
    return None


def _too_early(row: UsageRow, placed_at: datetime, limits: Limits) -> tuple[RowFault, str] | None:
    """A node's clock may be behind the scheduler's by as much as it may be ahead of the stream's."""
    early_s = (placed_at - row.window_start).total_seconds()
    if early_s <= limits.ahead_s:
        return None
    begin = row.window_start.isoformat()
    return RowFault.CLOCK_JUMP, f"the window begins at {begin}, {early_s:.0f} s before the attempt was placed"


def distinct(samples: Sequence[Sample], standing: Mapping[Identity, UsageRow]) -> tuple[list[Sample], list[Refused]]:
    """The first of each identity that is not among `standing`, and those that say other than the first.

    What says the same as the first is the same sample, and is in neither.
    """
    first, fresh, conflicts = dict(standing), list[Sample](), list[Refused]()
    for sample in samples:
        row = sample.measured.row
        key = identity(row)
        if key not in first:
            first[key] = row
            fresh.append(sample)
        elif first[key] != row:
            conflicts.append(Refused(sample.measured, RowFault.CONFLICT, _conflict_words(row)))
    return fresh, conflicts


def overlapping(samples: Sequence[Sample]) -> Iterator[int]:
    """Places of samples, all of distinct identities, whose window overlaps one of the same card that begins earlier."""
    ordered = sorted(enumerate(samples), key=lambda item: (_card(item[1]), item[1].measured.row.window_start))
    before: Sample | None = None
    for place, sample in ordered:
        if before is not None and _card(before) == _card(sample) and _begins_within(sample, before):
            yield place
        else:
            before = sample


def _begins_within(sample: Sample, other: Sample) -> bool:
    return sample.measured.row.window_start < other.measured.row.window_end


def _card(sample: Sample) -> tuple[str, int, int, int, str]:
    row = sample.measured.row
    return row.job_id, row.attempt, row.member, row.card, str(row.item)


def overlap(measured: Measured) -> Refused:
    """A row that overlaps another one."""
    row = measured.row
    begin, end = row.window_start.isoformat(), row.window_end.isoformat()
    words = f"{begin} to {end} overlaps another window of card {row.card}: one moment is billed once"
    return Refused(measured, RowFault.OVERLAP, words)


def _conflict_words(row: UsageRow) -> str:
    return f"another row with the same identity was stored before, with other content than {row.quantity}"
