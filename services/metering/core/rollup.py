"""How a closing's samples become roll-ups: groups of one hour, bounded in entries and in samples."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

MAX_ENTRIES = 128  # of at most 3.4 KB each, so that every roll-up fits into a reply
MAX_SAMPLES = 100_000
NAMESPACE = UUID("0d1f6f0e-6d8c-5f0a-9c53-5b8d0a4b7f21")


@dataclass(frozen=True)
class Share:
    """What one job has in one hour of a closing on one kind of card: how many entries and samples it makes."""

    hour: datetime
    job_id: str
    accelerator: str
    tier: str
    entries: int
    samples: int


@dataclass(frozen=True)
class Planned:
    """One roll-up to be: all samples of these shares. `part` counts those of the hour, from 0."""

    rollup_id: str
    hour: datetime
    part: int
    shares: tuple[Share, ...]
    samples: int


def plan(
    close_id: str, shares: Iterable[Share], max_entries: int = MAX_ENTRIES, max_samples: int = MAX_SAMPLES
) -> list[Planned]:
    """Deterministic: the same shares in any order make the same roll-ups under the same ids.

    A share is never divided; one that alone is above a bound stands alone.
    """
    ordered = sorted(shares, key=lambda share: (share.hour, share.job_id, share.accelerator, share.tier))
    planned: list[Planned] = []
    for group in _groups(ordered, max_entries, max_samples):
        hour = group[0].hour
        part = sum(one.hour == hour for one in planned)
        name = f"{close_id}/{hour.isoformat()}/{part}"
        samples = sum(share.samples for share in group)
        planned.append(Planned(str(uuid5(NAMESPACE, name)), hour, part, tuple(group), samples))
    return planned


def _groups(shares: Sequence[Share], max_entries: int, max_samples: int) -> Iterator[list[Share]]:
    group: list[Share] = []
    for share in shares:
        entries = sum(one.entries for one in group) + share.entries
        samples = sum(one.samples for one in group) + share.samples
        if group and (group[0].hour != share.hour or entries > max_entries or samples > max_samples):
            yield group
            group = []
        group.append(share)
    if group:
        yield group
