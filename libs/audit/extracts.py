"""Extracts: the samples behind a roll-up, as one object of the store."""

import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction

from pydantic import ValidationError

from contracts.usage import UsageItem, UsageRolledUp, UsageRow
from libs.audit.findings import Difference, differs
from libs.audit.gathered import Extract, Identity, identity, words

HOUR = timedelta(hours=1)
US_PER_MS = 1000
MAX_EXTRACT_BYTES = 1024**3
WHOLE_CARD = 1000


def read_extract(data: bytes) -> Extract:
    """Unpack an extract. What is damaged is told in `fault`."""
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_EXTRACT_BYTES + 1)
        if len(content) > MAX_EXTRACT_BYTES:
            return Extract(fault=f"more than {MAX_EXTRACT_BYTES} bytes when unpacked")
        rows = [UsageRow.model_validate_json(line) for line in content.splitlines()]
    except (OSError, EOFError, zlib.error, ValidationError) as error:
        return Extract(fault=f"not readable: {' '.join(str(error).split())[:200]}")
    return Extract(hashlib.sha256(content).hexdigest(), rows)


def check_extracts(
    tenant: str, rollups: Sequence[UsageRolledUp], extracts: Mapping[str, Extract]
) -> Iterator[Difference]:
    """Digest, count, order, hour and sums of each extract, and each sample once over all of them."""
    owners: dict[Identity, str] = {}
    for rollup in rollups:
        extract = extracts[rollup.rollup_id]
        if extract.fault is not None:
            yield from differs("extract", rollup.extract, f"samples of sha256 {rollup.sha256}", extract.fault)
            continue
        yield from differs("extract's sha256", rollup.extract, rollup.sha256, extract.sha256)
        yield from differs("extract's samples", rollup.extract, rollup.samples, len(extract.rows))
        keys = [identity(row) for row in extract.rows]
        yield from differs("extract's order", rollup.extract, "by identity", _order(keys))
        yield from _check_sums(rollup, extract.rows)
        for row, key in zip(extract.rows, keys, strict=True):
            yield from _check_row(tenant, rollup, row)
            owner = owners.setdefault(key, rollup.rollup_id)
            yield from differs("sample in more than one roll-up", words(key), owner, rollup.rollup_id)


def _order(keys: Sequence[Identity]) -> str:
    if len(set(keys)) != len(keys):
        return "a sample more than once"
    return "by identity" if list(keys) == sorted(keys) else "another order"


def _check_row(tenant: str, rollup: UsageRolledUp, row: UsageRow) -> Iterator[Difference]:
    where = f"{words(identity(row))} in {rollup.extract}"
    yield from differs("sample's tenant", where, tenant, row.tenant)
    if not rollup.hour <= row.window_start < row.window_end <= rollup.hour + HOUR:
        window = f"{row.window_start.isoformat()} to {row.window_end.isoformat()}"
        yield Difference(
            what="sample's window", where=where, expected=f"in the hour of {rollup.hour.isoformat()}", found=window
        )
    held_us = (row.window_end - row.window_start) // timedelta(microseconds=1)
    share_ms = Fraction(row.share_milli, WHOLE_CARD) * Fraction(held_us, US_PER_MS)
    if row.item is UsageItem.GPU_MS and abs(row.quantity - share_ms) > 1:
        yield Difference(
            what="sample's quantity", where=where, expected=f"{float(share_ms):.0f}", found=str(row.quantity)
        )


def _check_sums(rollup: UsageRolledUp, rows: Sequence[UsageRow]) -> Iterator[Difference]:
    """A sample does not name its tier, so tiers are taken together here."""
    quantity, samples = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for row in rows:
        quantity[row.job_id, str(row.item), row.accelerator] += row.quantity
        samples[row.job_id, str(row.item), row.accelerator] += 1
    told_quantity, told_samples = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for entry in rollup.entries:
        kind = (entry.job_id or "", str(entry.item), entry.accelerator or "")
        told_quantity[kind] += entry.quantity
        told_samples[kind] += entry.samples
    for key in sorted(samples.keys() | told_samples.keys()):
        where = f"roll-up {rollup.rollup_id}, job {key[0]} {key[1]} {key[2]}"
        yield from differs("roll-up's quantity", where, quantity[key], told_quantity[key])
        yield from differs("roll-up's count", where, samples[key], told_samples[key])


def check_raw(extract: Extract, raw: Sequence[UsageRow]) -> Iterator[Difference]:
    """Metering's own samples as they stand now are those of the extract."""
    before = {identity(row): row for row in extract.rows}
    now = {identity(row): row for row in raw}
    for key in sorted(before.keys() | now.keys()):
        then, found = before.get(key), now.get(key)
        if then != found:
            where = f"metering's samples, {words(key)}"
            yield from differs("sample since the close", where, _shown(then), _shown(found))


def _shown(row: UsageRow | None) -> str:
    return "none" if row is None else row.model_dump_json()
