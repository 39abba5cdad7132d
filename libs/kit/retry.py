"""One way to wait between tries: growing, capped and bounded."""

import itertools
from collections.abc import Iterator


def delays(first_s: float, cap_s: float, *, factor: float = 2.0, tries: int | None = None) -> Iterator[float]:
    """Delays in seconds between tries: `first_s`, then `factor` times more each, never above `cap_s`.

    Ends after `tries` delays; without `tries` it goes on for as long as the caller asks.
    """
    for number in itertools.count() if tries is None else range(tries):
        yield delay(number, first_s, cap_s, factor=factor)


def delay(number: int, first_s: float, cap_s: float, *, factor: float = 2.0) -> float:
    """The delay in seconds before try `number` (0 is the first repetition)."""
    exponent = min(number, 64)
    return min(cap_s, first_s * factor**exponent)
