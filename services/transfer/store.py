"""All SQL of the transfer service. Functions take the connection of the caller's transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from contracts.jobs import DatasetRef
from contracts.transfers import ManifestEntry, TransferRequest
from libs.db import Connection, Row
from libs.telemetry.context import Trace
from services.transfer.core import Dataset, State, Totals, Transfer

LIST_LIMIT = 1000

_COLUMNS = "transfer_id, tenant, name, dataset_version, source, manifest_sha256, state, message"
_ADD = """
    INSERT INTO transfers (transfer_id, tenant, name, dataset_version, source, manifest_sha256, state, actor,
      trace_life, trace_hop, requested_at, due_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11) ON CONFLICT DO NOTHING RETURNING true
"""
_GET = f"SELECT {_COLUMNS} FROM transfers WHERE transfer_id = $1"  # noqa: S608 - column names from above
_DUE = f"""
    SELECT {_COLUMNS}, actor, trace_life, trace_hop FROM transfers WHERE due_at <= $1 ORDER BY due_at LIMIT $2
"""  # noqa: S608 - as above
_ORIGIN = "SELECT actor, trace_life, trace_hop FROM transfers WHERE transfer_id = $1"
_MOVE = """
    UPDATE transfers SET state = $2, message = $3, due_at = $4, tries = 0, ended_at = $5
    WHERE transfer_id = $1 AND state = $6 RETURNING true
"""
_POSTPONE = "UPDATE transfers SET tries = tries + 1, due_at = $2, message = $3 WHERE transfer_id = $1"
_BUMP = "UPDATE transfers SET sequence = sequence + 1 WHERE transfer_id = $1 RETURNING sequence"
_ADD_ENTRIES = """
    INSERT INTO entries (transfer_id, path, sha256, size_bytes)
    SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING
"""
_WAITING = """
    SELECT path, sha256, size_bytes FROM entries WHERE transfer_id = $1 AND NOT staged ORDER BY path LIMIT $2
"""
_STAGED = "UPDATE entries SET staged = true WHERE transfer_id = $1 AND path = ANY($2::text[])"
_TOTALS = """
    SELECT count(*) AS objects, coalesce(sum(size_bytes), 0)::bigint AS size_bytes,
      count(*) FILTER (WHERE staged) AS staged
    FROM entries WHERE transfer_id = $1
"""
_DATASET = """
    SELECT tenant, name, dataset_version, transfer_id, manifest_sha256, objects, size_bytes, completed_at FROM datasets
"""
_CLAIM = """
    INSERT INTO datasets (tenant, name, dataset_version, transfer_id, manifest_sha256) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT DO NOTHING
"""
_COMPLETE = """
    UPDATE datasets SET objects = $2, size_bytes = $3, completed_at = $4 WHERE transfer_id = $1
"""
_FREE = "DELETE FROM datasets WHERE transfer_id = $1 AND completed_at IS NULL"
_LISTED = f"""
    {_DATASET} WHERE completed_at IS NOT NULL AND ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR name = $2)
    ORDER BY completed_at DESC LIMIT {LIST_LIMIT}
"""
_ADD_READERS = """
    INSERT INTO readers (node, tenant, name, dataset_version)
    SELECT DISTINCT node, $2, $3, $4 FROM unnest($1::text[]) AS node ON CONFLICT DO NOTHING
"""
_IS_READER = "SELECT true FROM readers WHERE node = $1 AND tenant = $2 AND name = $3 AND dataset_version = $4"


@dataclass(frozen=True)
class Origin:
    """Who and what caused a transfer; what follows from it is told in its name and its trace."""

    actor: str
    trace: Trace | None


@dataclass(frozen=True)
class Due:
    """A transfer with work to be done."""

    transfer: Transfer
    origin: Origin


async def add(conn: Connection, request: TransferRequest, origin: Origin, now: datetime) -> bool:
    """Enter a request; False when its id is known."""
    trace = origin.trace
    added = await conn.fetchval(
        _ADD,
        request.transfer_id,
        request.tenant,
        request.dataset.name,
        request.dataset.version,
        request.source,
        request.manifest_sha256,
        State.STAGING.value,
        origin.actor,
        None if trace is None else trace.life,
        None if trace is None else trace.hop,
        now,
    )
    return added is not None


async def load(conn: Connection, transfer_id: str) -> Transfer | None:
    """One transfer, locked until the transaction ends."""
    row = await conn.fetchrow(f"{_GET} FOR UPDATE", transfer_id)
    return None if row is None else _to_transfer(row)


async def origin_of(conn: Connection, transfer_id: str) -> Origin:
    """Who and what caused a transfer."""
    row = await conn.fetchrow(_ORIGIN, transfer_id)
    assert row is not None, f"transfer {transfer_id} has no row"
    return _to_origin(row)


async def due(conn: Connection, now: datetime, limit: int) -> list[Due]:
    """Transfers with work to be done now, the longest waiting first."""
    return [Due(_to_transfer(row), _to_origin(row)) for row in await conn.fetch(_DUE, now, limit)]


async def move(
    conn: Connection,
    transfer: Transfer,
    state: State,
    *,
    message: str | None = None,
    due_at: datetime | None = None,
    ended_at: datetime | None = None,
) -> bool:
    """Give a transfer a new state if it still has the one it was read with."""
    args = (transfer.transfer_id, state.value, message, due_at, ended_at, transfer.state.value)
    return await conn.fetchval(_MOVE, *args) is not None


async def settle(conn: Connection, transfer_id: str) -> None:
    """Nothing is left to be done for it."""
    await conn.execute("UPDATE transfers SET due_at = NULL WHERE transfer_id = $1", transfer_id)


async def tries(conn: Connection, transfer_id: str) -> int:
    """How often its work was put off in a row."""
    return int(await conn.fetchval("SELECT tries FROM transfers WHERE transfer_id = $1", transfer_id))


async def postpone(conn: Connection, transfer_id: str, due_at: datetime, message: str) -> None:
    """Go on later."""
    await conn.execute(_POSTPONE, transfer_id, due_at, message)


async def next_sequence(conn: Connection, transfer_id: str) -> int:
    """The sequence of the next event about this transfer."""
    return int(await conn.fetchval(_BUMP, transfer_id))


async def add_entries(conn: Connection, transfer_id: str, entries: Sequence[ManifestEntry]) -> None:
    """Enter what a transfer consists of; entries that are there keep their progress."""
    columns = zip(*((entry.path, entry.sha256, entry.size_bytes) for entry in entries), strict=True)
    await conn.execute(_ADD_ENTRIES, transfer_id, *(list(column) for column in columns))


async def waiting_entries(conn: Connection, transfer_id: str, limit: int) -> list[ManifestEntry]:
    """Entries that are not staged yet."""
    rows = await conn.fetch(_WAITING, transfer_id, limit)
    return [ManifestEntry(path=row["path"], sha256=row["sha256"], size_bytes=row["size_bytes"]) for row in rows]


async def mark_staged(conn: Connection, transfer_id: str, paths: Iterable[str]) -> None:
    """These entries are copied and verified."""
    await conn.execute(_STAGED, transfer_id, list(paths))


async def totals(conn: Connection, transfer_id: str) -> Totals:
    """What the ledger counts."""
    row = await conn.fetchrow(_TOTALS, transfer_id)
    assert row is not None
    return Totals(row["objects"], row["size_bytes"], row["staged"])


async def claim_dataset(conn: Connection, transfer: Transfer) -> Dataset:
    """Claim a dataset version for a transfer, and return whose it is; locked until the transaction ends."""
    dataset = transfer.dataset
    place = (transfer.tenant, dataset.name, dataset.version)
    await conn.execute(_CLAIM, *place, transfer.transfer_id, transfer.manifest_sha256)
    query = f"{_DATASET} WHERE tenant = $1 AND name = $2 AND dataset_version = $3 FOR UPDATE"
    row = await conn.fetchrow(query, *place)
    assert row is not None
    return _to_dataset(row)


async def find_claim(conn: Connection, transfer: Transfer) -> Dataset | None:
    """The dataset version that a transfer has claimed or staged."""
    row = await conn.fetchrow(f"{_DATASET} WHERE transfer_id = $1", transfer.transfer_id)
    return None if row is None else _to_dataset(row)


async def free_dataset(conn: Connection, transfer_id: str) -> None:
    """Give a claim back."""
    await conn.execute(_FREE, transfer_id)


async def complete_dataset(conn: Connection, transfer_id: str, found: Totals, at: datetime) -> None:
    """The version stands."""
    await conn.execute(_COMPLETE, transfer_id, found.objects, found.size_bytes, at)


async def find_dataset(conn: Connection, tenant: str, name: str, version: str) -> Dataset | None:
    """A dataset version that stands."""
    query = f"{_DATASET} WHERE tenant = $1 AND name = $2 AND dataset_version = $3 AND completed_at IS NOT NULL"
    row = await conn.fetchrow(query, tenant, name, version)
    return None if row is None else _to_dataset(row)


async def add_readers(conn: Connection, nodes: Sequence[str], tenant: str, dataset: DatasetRef) -> None:
    """These nodes may learn where a dataset version stands."""
    await conn.execute(_ADD_READERS, nodes, tenant, dataset.name, dataset.version)


async def is_reader(conn: Connection, node: str, tenant: str, dataset: DatasetRef) -> bool:
    """Whether a node may learn where a dataset version stands."""
    return await conn.fetchval(_IS_READER, node, tenant, dataset.name, dataset.version) is not None


async def list_datasets(conn: Connection, tenant: str | None, name: str | None) -> list[Dataset]:
    """Dataset versions that stand, newest first, at most LIST_LIMIT."""
    return [_to_dataset(row) for row in await conn.fetch(_LISTED, tenant, name)]


def _to_transfer(row: Row) -> Transfer:
    return Transfer(
        transfer_id=row["transfer_id"],
        tenant=row["tenant"],
        dataset=DatasetRef(name=row["name"], version=row["dataset_version"]),
        source=row["source"],
        manifest_sha256=row["manifest_sha256"],
        state=State(row["state"]),
        message=row["message"],
    )


def _to_origin(row: Row) -> Origin:
    trace = None if row["trace_life"] is None else Trace(row["trace_life"], row["trace_hop"])
    return Origin(row["actor"], trace)


def _to_dataset(row: Row) -> Dataset:
    return Dataset(
        tenant=row["tenant"],
        dataset=DatasetRef(name=row["name"], version=row["dataset_version"]),
        transfer_id=row["transfer_id"],
        manifest_sha256=row["manifest_sha256"],
        objects=row["objects"],
        size_bytes=row["size_bytes"],
        completed_at=row["completed_at"],
    )
