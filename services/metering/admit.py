"""From measured rows to samples: judge, look for overlaps, store each once, keep the rest with its reason."""

from collections import Counter
from collections.abc import Sequence

from contracts.usage import RowFault
from libs.db import Connection
from libs.kit.logs import get_logger
from services.metering import store
from services.metering.core import judge
from services.metering.core.model import Limits, Measured, Refused, Sample, identity
from services.metering.meters import Meters


async def admit(conn: Connection, measured: Sequence[Measured], limits: Limits, meters: Meters) -> None:
    """Bring rows to their verdict, in the caller's transaction. A second time, nothing changes."""
    await store.lock(conn)
    keys = {(one.row.job_id, one.row.attempt) for one in measured}
    known = await store.placements(conn, keys)
    verdicts = [judge.judge(one, known.get((one.row.job_id, one.row.attempt)), limits) for one in measured]
    samples = [one for one in verdicts if isinstance(one, Sample)]
    refused = [one for one in verdicts if isinstance(one, Refused)]
    counting, clashing = await _apart(conn, samples)
    new, conflicting = await _store(conn, counting)
    refused += [*clashing, *conflicting]
    await store.refuse(conn, refused)
    _tell(new, refused, meters)


async def _apart(conn: Connection, samples: Sequence[Sample]) -> tuple[list[Sample], list[Refused]]:
    """Samples that overlap nothing, and those that overlap what is stored or came before them."""
    clashes = await store.overlaps(conn, samples)
    clashes |= {place for place, _ in judge.overlapping(samples)}
    counting = [sample for place, sample in enumerate(samples) if place not in clashes]
    rows = [samples[place].measured for place in sorted(clashes)]
    return counting, [Refused(one, RowFault.OVERLAP, judge.overlap_words(one.row)) for one in rows]


async def _store(conn: Connection, samples: Sequence[Sample]) -> tuple[int, list[Refused]]:
    """How many were new, and those whose identity is taken by another content."""
    first: dict[object, Sample] = {}
    for sample in samples:
        first.setdefault(identity(sample.measured.row), sample)
    new = await store.insert(conn, first.values())
    again = [one.measured for one in samples if first[identity(one.measured.row)] is not one]
    again += [one.measured for key, one in first.items() if key not in new]
    standing = await store.standing(conn, [one.row for one in again])
    other = [one for one in again if not judge.same(standing[identity(one.row)], one.row)]
    return len(new), [Refused(one, RowFault.CONFLICT, judge.conflict_words(one.row)) for one in other]


def _tell(new: int, refused: Sequence[Refused], meters: Meters) -> None:
    meters.stored(new)
    meters.refused(Counter(one.fault for one in refused))
    for one in refused:
        row = one.measured.row
        get_logger().warning(
            "usage.refused",
            job=row.job_id,
            attempt=row.attempt,
            node=one.measured.node,
            fault=one.fault.value,
            reason=one.message,
        )
