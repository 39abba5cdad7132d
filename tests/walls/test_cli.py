"""`farside` in the hands of a tenant: its own jobs, by its own user, and clear words where the bus says no."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from libs.bus.accounts import tenant_user
from libs.cli.main import cli
from libs.kit.ids import new_id
from tests.walls.hub import ACME, WalledServer

pytestmark = pytest.mark.timeout(120)

Farside = Callable[..., Result]


@pytest.fixture
def farside(manned: WalledServer) -> Iterator[Farside]:
    """The command line as tenant acme; `--tenant` is not needed. Its quiet logs end with the test."""
    env = {"FARSIDE_NATS_URL": manned.as_(tenant_user(ACME)), "FARSIDE_TENANT": None}

    def run(*words: str, stdin: str = "") -> Result:
        return CliRunner(env=env).invoke(cli, words, input=stdin)

    yield run
    structlog.reset_defaults()


def job(**fields: Any) -> str:
    usual = {"name": "mine", "kind": "batch", "command": ["true"], "resources": {"cards": 1}, "max_runtime_s": 60}
    return json.dumps(usual | fields)


def test_a_tenant_submits_looks_and_cancels(farside: Farside) -> None:
    submitted = farside("job", "submit", "-", stdin=job())
    assert submitted.exit_code == 0, submitted.output
    job_id = submitted.stdout.strip()
    listed = json.loads(farside("job", "list", "--json").stdout)["jobs"]
    assert job_id in {one["job_id"] for one in listed}
    assert {one["tenant"] for one in listed} == {ACME}
    assert json.loads(farside("job", "show", job_id, "--json").stdout)["job"]["job_id"] == job_id
    assert json.loads(farside("why", job_id, "--json").stdout)["job_id"] == job_id
    cancelled = farside("job", "cancel", job_id)
    assert cancelled.exit_code == 0, cancelled.output
    watched = farside("job", "watch", job_id, "--json")
    assert json.loads(watched.stdout)["outcome"] == "cancelled"


def test_a_tenant_is_told_why_its_job_was_refused(farside: Farside) -> None:
    refused = farside("job", "submit", "-", stdin=job(name="huge", resources={"cards": 8}, members=16))
    assert refused.exit_code == 1, refused.output
    assert "job huge was refused" in refused.stderr
    assert json.loads(farside("why", "huge", "--json").stdout)["outcome"] == "rejected"


def test_a_job_sent_again_is_the_job_it_was(farside: Farside) -> None:
    job_id = new_id()
    for _ in range(2):
        sent = farside("job", "submit", "-", "--job-id", job_id, stdin=job(name="again"))
        assert (sent.exit_code, sent.stdout.strip()) == (0, job_id), sent.output
    other = farside("job", "submit", "-", "--job-id", job_id, stdin=job(name="another"))
    assert other.exit_code == 1, other.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nodes"], "is the operator's, and this is tenant acme"),
        (["alerts"], "is the operator's, and this is tenant acme"),
        (["deadletter", "list"], "is the operator's, and this is tenant acme"),
        (["bill", "close"], "is the operator's, and this is tenant acme"),
        (["job", "list", "--tenant", "beta"], "tenant acme may not speak for tenant beta"),
        (["job", "list", "--tenant", "_"], "tenant acme may not speak for all tenants"),
        (["job", "cancel", new_id(), "--tenant", "beta"], "tenant acme may not speak for tenant beta"),
    ],
)
def test_what_is_not_a_tenants_is_said_in_words(farside: Farside, words: list[str], told: str) -> None:
    done = farside(*words)
    assert done.exit_code == 1, done.output
    assert told in done.stderr
