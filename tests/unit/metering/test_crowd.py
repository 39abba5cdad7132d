"""All attempts together are billed for one card at most, at each moment, whatever their nodes say."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.metering.core.crowd import WHOLE_MILLI, Span, crowded
from services.metering.core.model import Sample
from tests.unit.metering.make import START, sample

MS = timedelta(milliseconds=1)
shares = st.sampled_from([1, 250, 500, 501, 1000])
spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), shares, st.integers(0, 1)), max_size=8)


def share(begin: int, length: int, milli: int, card: int) -> Sample:
    return sample(begin * 1000, (begin + length) * 1000, card=card, share_milli=milli, quantity=length * milli)


def span(one: Sample) -> Span:
    row = one.measured.row
    return Span(row.window_start, row.window_end, row.share_milli)


def held(card_spans: list[Span], at: datetime) -> int:
    return sum(one.share_milli for one in card_spans if one.start <= at < one.end)


def fits(card_spans: list[Span]) -> bool:
    return all(held(card_spans, one.start) <= WHOLE_MILLI for one in card_spans)


@given(spans, spans)
def test_a_card_is_never_held_more_than_once_and_nothing_is_refused_that_had_room(
    stored: list[tuple[int, int, int, int]], said: list[tuple[int, int, int, int]]
) -> None:
    standing: dict[int, list[Span]] = {0: [], 1: []}
    for begin, length, milli, card in stored:
        own = span(share(begin, length, milli, card))
        if fits([*standing[card], own]):
            standing[card].append(own)
    samples = [share(*each) for each in said]
    beside = {
        place: [
            other
            for other in standing[one.measured.row.card]
            if other.start < one.measured.row.window_end and other.end > one.measured.row.window_start
        ]
        for place, one in enumerate(samples)
    }
    refused = set(crowded(samples, beside))
    kept = {
        card: [*standing[card]]
        + [span(one) for place, one in enumerate(samples) if place not in refused and one.measured.row.card == card]
        for card in standing
    }
    assert all(fits(of_card) for of_card in kept.values())
    for place in refused:
        assert not fits([*kept[samples[place].measured.row.card], span(samples[place])])


def test_of_two_that_begin_together_the_first_stands() -> None:
    one, two = share(0, 10, 1000, 0), share(0, 10, 1000, 0)
    assert list(crowded([one, two], {})) == [1]
    assert list(crowded([one], {0: [Span(START, START + 10_000 * MS, 1)]})) == [0]
