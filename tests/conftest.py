"""Fixtures shared by all tests: one server of each kind for the whole run."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.objects.proxy import S3Proxy
from tests.servers import NatsServer, PostgresServer, SeaweedServer

# How long an example takes tells of the machine and what else it does, not of the code.
settings.register_profile("farside", deadline=None)
settings.load_profile("farside")


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A hub for tests that neither stop nor reconfigure it."""
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for tests that do not stop it; `create_database()` gives each test its own database."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The superuser DSN of a database made for this test."""
    return postgres.create_database()


@pytest.fixture(scope="session")
def s3() -> Iterator[SeaweedServer]:
    """An S3 endpoint by SeaweedFS."""
    with SeaweedServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(s3: SeaweedServer) -> Iterator[S3Proxy]:
    """A place between the services of a module's tests and the object store, where faults are made."""
    with S3Proxy(s3.ports["s3"]) as made:
        yield made
