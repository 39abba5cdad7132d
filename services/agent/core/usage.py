"""Held time: how long attempts hold cards, cut into the windows of the grid.

In: holds, how far each may be measured, the period. Out: windows with their pieces, and the rows of each. Times are
whole milliseconds since 1970 by the meter's clock, windows are half-open, so that pieces never overlap and leave no gap
whenever and however often the meter looks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from contracts.usage import MAX_ROWS, UsageItem, UsageRow
from services.agent.core.model import AttemptKey

ROWS_BYTES = 512 * 1024
WHOLE_CARD_MILLI = 1000
SMALL_STEP_MS = 60_000
STOPPED_S = 5.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True)
class HeldCard:
    """A card as it was at the claim, and how much of it is held: other attempts may hold the rest."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    share_milli: int = WHOLE_CARD_MILLI


@dataclass(frozen=True)
class Hold:
    """Cards of one attempt's member, from its claim to its exit. What is before `metered_to` is told.

    `epoch` names the lease that it stands under, None where the task goes on without one (`on_partition: keep`).
    """

    key: AttemptKey
    tenant: str
    cards: tuple[HeldCard, ...]
    held_from: int
    metered_to: int
    held_to: int | None = None
    life: str | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class Piece:
    """What of a hold lies in one window."""

    hold: Hold
    start: int
    end: int


@dataclass(frozen=True)
class Window:
    """One window of the grid with all that was held in it and is not told yet."""

    start: int
    pieces: tuple[Piece, ...]


def to_ms(at: datetime) -> int:
    """Whole milliseconds since 1970."""
    return (at - _EPOCH) // _MS


def to_time(ms: int) -> datetime:
    """The other way."""
    return _EPOCH + ms * _MS


def offset(wall_ms: int, boot_ms: int, floor_ms: int | None) -> int:
    """Set the meter's clock to the time of day, but not before `floor_ms`: what to add to the boot clock."""
    return (wall_ms if floor_ms is None else max(wall_ms, floor_ms)) - boot_ms


def floor_of_idle(wall_ms: int, last_ms: int | None) -> int | None:
    """The earliest time to begin with when nothing is held and the last hold ended at `last_ms`.

    A clock that was put back a little must not make two attempts overlap on a card; one that was far ahead may heal.
    """
    return last_ms if last_ms is not None and last_ms - wall_ms <= SMALL_STEP_MS else None


def end_of(hold: Hold, ended_ms: int, awake_ms: int, now_ms: int, *, unseen: bool) -> int:
    """When a hold ended whose attempt exits at `now_ms`, its lease left aside.

    That is the exit, unless the agent was stopped or away since the task ended at `ended_ms`: it has been awake since
    `awake_ms` only. Where nobody saw the end (`unseen`) it is what was measured last.
    """
    if unseen:
        return hold.metered_to
    last = now_ms if ended_ms >= awake_ms else min(ended_ms, now_ms)
    return max(last, hold.metered_to)


def bounded(hold: Hold, end_ms: int, lapse_ms: int | None) -> int:
    """No hold goes on when its lease has run out, at `lapse_ms`; where that is not known, what is told is all."""
    if hold.epoch is None:
        return end_ms
    return hold.metered_to if lapse_ms is None else max(hold.metered_to, min(end_ms, lapse_ms))


def measurable(hold: Hold, seen_ms: int, period_ms: int, lapse_ms: int | None, *, alive: bool) -> int:
    """How far a hold may be measured: to its end, or where it lasted at `seen_ms` (`alive`) to the last full window."""
    if hold.held_to is not None:
        return hold.held_to
    if not alive:
        return hold.metered_to
    return bounded(hold, max(hold.metered_to, seen_ms - seen_ms % period_ms), lapse_ms)


def windows(reach: Mapping[Hold, int], period_ms: int, limit: int) -> list[Window]:
    """Cut what is not told up to the reach of each hold into windows; the first `limit` of them."""
    found: dict[int, list[Piece]] = {}
    for hold, end in reach.items():
        for piece in islice(_pieces(hold, end, period_ms), limit):
            found.setdefault(piece.start - piece.start % period_ms, []).append(piece)
    return [Window(start, _in_order(found[start])) for start in sorted(found)[:limit]]


def metered(taken: Sequence[Window]) -> dict[AttemptKey, int]:
    """How far each hold is told once the windows are."""
    return {piece.hold.key: piece.end for window in taken for piece in window.pieces}


def rows(window: Window) -> Iterator[UsageRow]:
    """Two rows for each card of each piece."""
    for piece in window.pieces:
        for card in piece.hold.cards:
            yield _row(piece, card, UsageItem.GPU_MS, 1)
            yield _row(piece, card, UsageItem.GPU_MEMORY_MIB_MS, card.memory_mib)


def portions(all_rows: Iterator[UsageRow]) -> Iterator[list[UsageRow]]:
    """Cut rows into messages: at most MAX_ROWS and about ROWS_BYTES each, in order."""
    part: list[UsageRow] = []
    size = 0
    for row in all_rows:
        weight = len(row.model_dump_json()) + 1
        if part and (len(part) == MAX_ROWS or size + weight > ROWS_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += weight
    if part:
        yield part


def _pieces(hold: Hold, end: int, period_ms: int) -> Iterator[Piece]:
    start = hold.metered_to
    while start < end:
        cut = min(end, start - start % period_ms + period_ms)
        yield Piece(hold, start, cut)
        start = cut


def _in_order(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple(sorted(pieces, key=lambda piece: piece.hold.key))


def _row(piece: Piece, card: HeldCard, item: UsageItem, per_ms: int) -> UsageRow:
    hold = piece.hold
    return UsageRow(
        job_id=hold.key.job_id,
        tenant=hold.tenant,
        attempt=hold.key.attempt,
        member=hold.key.member,
        card=card.index,
        card_uuid=card.uuid,
        accelerator=card.model,
        share_milli=card.share_milli,
        item=item,
        quantity=card.share_milli * (piece.end - piece.start) // WHOLE_CARD_MILLI * per_ms,
        window_start=to_time(piece.start),
        window_end=to_time(piece.end),
    )
