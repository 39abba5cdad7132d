"""A card is one card: what all attempts hold of it at one moment is the whole of it at most.

In: samples that would count, and what is stored of their cards by other attempts. Out: the samples that are too many.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from contracts.usage import RowFault
from services.metering.core.model import Measured, Refused, Sample

WHOLE_MILLI = 1000


@dataclass(frozen=True)
class Span:
    """A share of a card, held from `start` to `end`."""

    start: datetime
    end: datetime
    share_milli: int


def crowded(samples: Sequence[Sample], beside: Mapping[int, Sequence[Span]]) -> Iterator[int]:
    """Places of samples that find too little left of their card; those that begin first stand.

    `beside` has what is stored of other attempts, by the place of the sample that it overlaps.
    """
    standing: dict[tuple[str, int, str], list[Span]] = {}
    for place, sample in sorted(enumerate(samples), key=lambda item: item[1].measured.row.window_start):
        row = sample.measured.row
        own = Span(row.window_start, row.window_end, row.share_milli)
        card = (sample.measured.node, row.card, str(row.item))
        others = [one for one in standing.get(card, ()) if one.end > own.start]
        if own.share_milli + _peak(own, [*others, *beside.get(place, ())]) > WHOLE_MILLI:
            yield place
        else:
            others.append(own)
        standing[card] = others


def _peak(own: Span, others: Sequence[Span]) -> int:
    """The most that `others`, which all overlap `own`, hold at one moment of it."""
    begins = [(max(one.start, own.start), one.share_milli) for one in others]
    ends = [(one.end, -one.share_milli) for one in others]
    return max(accumulate(change for _, change in sorted(begins + ends)), default=0)


def too_many(measured: Measured) -> Refused:
    """A row for which nothing is left of its card."""
    row = measured.row
    begin, end = row.window_start.isoformat(), row.window_end.isoformat()
    words = (
        f"{begin} to {end}: other attempts hold too much of card {row.card} of node {measured.node} for this one too"
    )
    return Refused(measured, RowFault.OVERLAP, words)
