"""The episodes that follow from what was read of a subject, in whatever order it was read.

Sorted by sequence, an episode lasts from an opening, when nothing else stands open, to the closing that leaves none.
What is read late may therefore add an episode that is over already, or part one in two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.alerting.core.model import Closing, Opening, Point

LIMIT = 64


@dataclass(frozen=True)
class Ended:
    """An episode that is over: what opened it, oldest first, and what closed it."""

    openings: tuple[Opening, ...]
    closing: Closing


@dataclass(frozen=True)
class Episodes:
    """Those that are over, oldest first, and the openings that nothing has closed."""

    ended: tuple[Ended, ...]
    standing: tuple[Opening, ...]


def episodes(openings: Iterable[Opening], closings: Iterable[Closing]) -> Episodes:
    """What follows from these events."""
    to_come = sorted(openings, key=lambda opening: opening.at)
    ended: list[Ended] = []
    members: list[Opening] = []
    standing: list[Opening] = []
    for closing in sorted(closings, key=lambda closing: closing.at):
        come = [opening for opening in to_come if opening.at.sequence <= closing.at.sequence]
        to_come = to_come[len(come) :]
        members += come
        standing = [opening for opening in (*standing, *come) if not closing.at.covers(opening.at)]
        if members and not standing:
            ended.append(Ended(tuple(members), closing))
            members = []
    return Episodes(tuple(ended), (*standing, *to_come))


def mark_told(closings: Iterable[Closing], ended: Sequence[Ended], read: Point) -> tuple[Closing, ...]:
    """`closings` once all of `ended` are told, where `read` is the event that was read last."""
    ends = {episode.closing.at for episode in ended}
    moved = {told.at for told in (_taken_over(closings, ended, episode, read) for episode in ended) if told}
    return tuple(
        closing._replace(told=closing.at in ends or (closing.told and closing.at not in moved)) for closing in closings
    )


def untold(closings: Iterable[Closing], ended: Sequence[Ended], read: Point) -> list[Ended]:
    """The episodes that nobody has been told to be over."""
    kept = tuple(closings)
    return [one for one in ended if not one.closing.told and _taken_over(kept, ended, one, read) is None]


def _taken_over(closings: Iterable[Closing], ended: Sequence[Ended], episode: Ended, read: Point) -> Closing | None:
    """The newer closing that was told as the end of this episode before its true end was read."""
    if episode.closing.at != read:
        return None
    ends = {one.closing.at for one in ended}
    idle = (closing for closing in closings if closing.told and closing.at not in ends)
    return next((one for one in idle if all(one.at.covers(opening.at) for opening in episode.openings)), None)


def trim(
    openings: tuple[Opening, ...], closings: tuple[Closing, ...]
) -> tuple[tuple[Opening, ...], tuple[Closing, ...]]:
    """Without the oldest beyond LIMIT of each. What decides whether it fires is never dropped."""
    gone = _superfluous(closings, [one.at for one in closings])
    kept = tuple(one for one in closings if one.at not in gone)
    # What a dropped closing has closed goes with it: else it would seem to be closed by the next.
    left = tuple(one for one in openings if not any(point.covers(one.at) for point in gone))
    gone = _superfluous(left, [one.at for one in (*left, *kept)])
    return tuple(one for one in left if one.at not in gone), kept


def _superfluous(events: Sequence[Opening | Closing], others: Iterable[Point]) -> set[Point]:
    """The oldest beyond LIMIT among those that another point covers."""
    points, by = sorted(event.at for event in events), tuple(others)
    covered = [point for point in points if any(other.covers(point) and other != point for other in by)]
    return set(covered[: max(len(points) - LIMIT, 0)])
