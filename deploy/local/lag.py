"""How far behind each part is: messages that wait in its durables, rows that wait in its outbox."""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from contracts import registry
from deploy.local.bus import Bus
from libs.bus.connection import Address, Callbacks, close, connect, jetstream
from libs.bus.provision import durables_read_by

CONNECT_S = 2.0
AGENT_DB = "agent.db"
WAITING_ROWS = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND parked_at IS NULL"


@dataclass(frozen=True)
class Lag:
    """`pending` messages are stored but not acknowledged, `outbox` rows not yet published; None where nobody knows."""

    pending: int | None
    outbox: int | None


async def measure(nats_url: str, directory: Path, services: list[str], nodes: list[str]) -> dict[str, Lag]:
    """The lag of each service and of each node's agent, asked all at once."""
    names = {**{service: service for service in services}, **{node: f"{registry.AGENT}/{node}" for node in nodes}}
    pending, outbox = await asyncio.gather(_pending(nats_url, names), _outboxes(nats_url, services))
    rows = outbox | {node: _agent_outbox(directory / "nodes" / node / AGENT_DB) for node in nodes}
    return {name: Lag(pending.get(name), rows.get(name)) for name in names}


async def _pending(nats_url: str, names: Mapping[str, str]) -> dict[str, int | None]:
    try:
        async with asyncio.timeout(CONNECT_S):
            connection = await connect(Address(nats_url, "status"), Callbacks())
    except (OSError, TimeoutError, NatsError):
        return {}
    try:
        js = jetstream(connection)
        sums = await asyncio.gather(*(_sum(js, service) for service in names.values()))
        return dict(zip(names, sums, strict=True))
    finally:
        await close(connection)


async def _sum(js: JetStreamContext, service: str) -> int | None:
    counts = await asyncio.gather(*(_waiting(js, stream, durable) for stream, durable in durables_read_by(service)))
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


async def _waiting(js: JetStreamContext, stream: str, durable: str) -> int | None:
    try:
        info = await js.consumer_info(stream, durable)
    except (OSError, TimeoutError, NatsError):
        return None
    return (info.num_pending or 0) + (info.num_ack_pending or 0)


async def _outboxes(nats_url: str, services: list[str]) -> dict[str, int | None]:
    bus = Bus(nats_url, "status")
    try:
        statuses = await asyncio.gather(*(bus.status(service) for service in services))
    finally:
        await bus.close()
    return {
        service: None if status is None else status.outbox_rows
        for service, status in zip(services, statuses, strict=True)
    }


def _agent_outbox(path: Path) -> int | None:
    """Read beside the agent, which writes: a look at a SQLite file in WAL mode blocks nobody."""
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute(WAITING_ROWS).fetchone()[0])
    except sqlite3.Error:
        return None
