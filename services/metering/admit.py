"""From measured rows to samples: judge, look for overlaps, store each once, keep the rest with its reason."""

from collections.abc import Callable, Collection, Sequence

from contracts.usage import RowFault
from libs.db import Connection
from libs.kit.logs import get_logger
from services.metering import store
from services.metering.core import crowd, judge
from services.metering.core.model import Limits, Measured, Refused, Sample, identity
from services.metering.meters import Meters


async def admit(conn: Connection, measured: Sequence[Measured], limits: Limits, meters: Meters) -> None:
    """Bring rows to their verdict, in the caller's transaction. A second time, nothing changes."""
    await store.lock(conn)
    keys = {(one.row.job_id, one.row.attempt) for one in measured}
    known = await store.placements(conn, keys)
    verdicts = [judge.judge(one, known.get((one.row.job_id, one.row.attempt)), limits) for one in measured]
    samples = [one for one in verdicts if isinstance(one, Sample)]
    refused = await _not_billed(conn, [one for one in verdicts if isinstance(one, Refused)])
    new, late = await _settle(conn, samples)
    refused += late
    await store.insert(conn, new)
    await store.refuse(conn, refused)
    _tell(len(new), refused, meters)


async def _not_billed(conn: Connection, refused: Sequence[Refused]) -> list[Refused]:
    """Without rows that a closing held before their fence was known: they stay billed when they come again."""
    fenced = [one.measured.row for one in refused if one.fault is RowFault.FENCED]
    standing = await store.standing(conn, fenced)
    return [
        one
        for one in refused
        if one.fault is not RowFault.FENCED or standing.get(identity(one.measured.row)) != one.measured.row
    ]


async def _settle(conn: Connection, samples: Sequence[Sample]) -> tuple[list[Sample], list[Refused]]:
    """Samples that are new, and those that cannot stand beside what is stored or came before them in this batch."""
    standing = await store.standing(conn, [sample.measured.row for sample in samples])
    fresh, refused = judge.distinct(samples, standing)
    fresh, stored_before = _without(fresh, await store.overlaps(conn, fresh))
    fresh, came_before = _without(fresh, set(judge.overlapping(fresh)))
    fresh, too_many = _without(fresh, set(crowd.crowded(fresh, await store.beside(conn, fresh))), crowd.too_many)
    return fresh, [*refused, *stored_before, *came_before, *too_many]


def _without(
    samples: Sequence[Sample], places: Collection[int], refuse: Callable[[Measured], Refused] = judge.overlap
) -> tuple[list[Sample], list[Refused]]:
    refused = [refuse(samples[place].measured) for place in sorted(places)]
    return [sample for place, sample in enumerate(samples) if place not in places], refused


def _tell(new: int, refused: Sequence[Refused], meters: Meters) -> None:
    meters.stored(new)
    meters.refused(one.fault for one in refused)
    alike: dict[tuple[str, int, str, str], list[Refused]] = {}
    for one in refused:
        key = (one.measured.row.job_id, one.measured.row.attempt, one.measured.node, one.fault.value)
        alike.setdefault(key, []).append(one)
    for (job_id, attempt, node, fault), rows in alike.items():
        get_logger().warning(
            "usage.refused",
            job=job_id,
            attempt=attempt,
            node=node,
            fault=fault,
            rows=len(rows),
            first=rows[0].message,
        )
