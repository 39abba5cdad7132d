"""Who may come to PostgreSQL as the local stack runs it: everybody by password, from the loopback, nobody else."""

from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from contracts.registry import SERVICES
from deploy.local.stack import Stack
from libs.db import connect_once, service_dsn

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncGenerator[Stack]:
    async with Stack(tmp_path / "stack", parts=["postgres", "provision"]) as started:
        yield started


async def test_every_role_comes_by_its_own_password(stack: Stack) -> None:
    config = stack.config
    superuser = await connect_once(config.pg_dsn)
    try:
        rules = await superuser.fetch("SELECT auth_method, error FROM pg_hba_file_rules")
        assert {(row["auth_method"], row["error"]) for row in rules} == {("scram-sha-256", None)}
        assert await superuser.fetchval("SHOW listen_addresses") == "127.0.0.1"
        assert await superuser.fetchval("SHOW unix_socket_directories") == ""
        stored = await superuser.fetch("SELECT rolpassword FROM pg_authid WHERE rolcanlogin")
        assert len(stored) == len(SERVICES) + 1
        assert all(row["rolpassword"].startswith("SCRAM-SHA-256$") for row in stored)
    finally:
        await superuser.close()
    name = urlsplit(config.pg_dsn).username or ""
    for role, password in [(name, config.secrets["postgres"]), *((one, config.secrets[one]) for one in SERVICES)]:
        session = await connect_once(service_dsn(config.pg_dsn, role, password))
        assert await session.fetchval("SELECT current_user") == role
        await session.close()
        for wrong in ("", "wrong", quote(role)):
            with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)):
                await connect_once(service_dsn(config.pg_dsn, role, wrong))
