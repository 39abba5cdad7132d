"""The step between servers and services: database, roles and schemas, streams and durables."""

from contracts.registry import SERVICES
from deploy.local.config import DATABASE, Config
from libs.bus.provision import provision as provision_bus
from libs.db import prepare_database
from libs.db.pool import connect_once


async def provision(config: Config, parts: frozenset[str], nodes: list[str], tenants: list[str]) -> str:
    """Bring the servers among `parts` up to what the services expect; returns what was done, in a few words."""
    done: list[str] = []
    if "postgres" in parts:
        await _create_database(config)
        await prepare_database(config.pg_dsn, {service: config.secrets[service] for service in SERVICES})
        done.append(f"{len(SERVICES)} schemas")
    if "nats" in parts:
        await provision_bus(config.nats_url, nodes, tenants)
        done.append(f"streams and durables for {len(nodes)} nodes, {len(tenants)} tenants")
    return ", ".join(done) or "nothing to do"


async def _create_database(config: Config) -> None:
    connection = await connect_once(config.maintenance_dsn)
    try:
        known = await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", DATABASE)
        if not known:
            await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()
