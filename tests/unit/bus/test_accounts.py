"""The accounts as text: who gets which subjects, and that nats-server takes them."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import NAME_PATTERN
from contracts.registry import SERVICES
from libs.bus.accounts import (
    OPERATOR,
    PASSWORD,
    REMOTE,
    hub_accounts,
    leaf_accounts,
    node_guest,
    node_user,
    service_grants,
    tenant_guest,
    tenant_of,
    tenant_user,
    variable,
)
from tests.servers import SCRIPTS

NAMES = st.from_regex(NAME_PATTERN.replace("$", r"\Z"))


def test_the_ways_of_a_tenant() -> None:
    guest = tenant_guest("acme")
    assert guest.name == "tenant-acme"
    ways = {way.local: way.subject for way in guest.crossings}
    assert {local for local, subject in ways.items() if local == subject} == {
        "jobs.v1.submit.acme",
        "jobs.v1.cancel.acme",
        "jobs.v1.hold.acme",
        "jobs.v1.release.acme",
        "jobs.v1.reprioritize.acme",
        "transfers.v1.request.acme",
        "query.v1.scheduler.jobs.acme",
        "query.v1.scheduler.job.acme",
        "query.v1.scheduler.explain.acme",
        "query.v1.scheduler.dry_run.acme",
        "query.v1.scheduler.quota.acme",
        "query.v1.scheduler.queue.acme",
        "query.v1.checkpoint.checkpoints.acme",
        "query.v1.transfer.datasets.acme",
        "query.v1.metering.usage.acme",
        "query.v1.metering.samples.acme",
        "query.v1.metering.refused.acme",
        "query.v1.metering.rollups.acme",
        "query.v1.billing.invoices.acme",
        "query.v1.billing.lines.acme",
        "$JS.ACK.JOBS.tenant-acme-JOBS.>",
        "$JS.ACK.CHECKPOINTS.tenant-acme-CHECKPOINTS.>",
        "$JS.ACK.TRANSFERS.tenant-acme-TRANSFERS.>",
        "$JS.ACK.USAGE.tenant-acme-USAGE.>",
        "$JS.ACK.INVOICES.tenant-acme-INVOICES.>",
    }
    api = {local.removeprefix("hub.api."): subject for local, subject in ways.items() if local != subject}
    assert {call: f"$JS.API.{call}" for call in api} == api
    assert {call.rpartition(".JOBS.")[0] for call in api if ".JOBS." in call} == {
        "CONSUMER.INFO",
        "CONSUMER.MSG.NEXT",
        "DIRECT.GET",
    }
    assert all("acme" in call for call in api)


def test_the_ways_of_a_node() -> None:
    guest = node_guest("remote-1")
    assert guest.name == "node-remote-1"
    assert [way.local for way in guest.crossings if way.local == way.subject] == [
        "nodes.v1.announced.remote-1",
        "nodes.v1.heartbeat.remote-1",
        "nodes.v1.reported.remote-1",
        "attempts.v1.started.remote-1",
        "attempts.v1.progressed.remote-1",
        "attempts.v1.ready.remote-1",
        "attempts.v1.saved.remote-1",
        "attempts.v1.unsaved.remote-1",
        "attempts.v1.hung.remote-1",
        "attempts.v1.exited.remote-1",
        "usage.v1.measured.remote-1",
        "query.v1.transfer.dataset.remote-1",
        "call.v1.scheduler.claim.remote-1",
        "call.v1.checkpoint.restore.remote-1",
        "$JS.ACK.WORK_CMD.agent-work-run-remote-1.>",
        "$JS.ACK.WORK_CMD.agent-work-stop-remote-1.>",
        "$JS.ACK.REPLAYS.agent-replay-remote-1.>",
        "deadletters.v1.buried.agent-work-run-remote-1",
        "deadletters.v1.buried.agent-work-stop-remote-1",
    ]
    assert {way.local for way in guest.crossings if way.streamed} == {
        "hub.api.CONSUMER.MSG.NEXT.WORK_CMD.agent-work-run-remote-1",
        "hub.api.CONSUMER.MSG.NEXT.WORK_CMD.agent-work-stop-remote-1",
        "hub.api.CONSUMER.MSG.NEXT.REPLAYS.agent-replay-remote-1",
    }


def test_the_grants_of_a_service() -> None:
    grants = service_grants("billing")
    assert grants.subscribe == (
        "_INBOX.billing.>",
        "query.v1.billing.status.*",
        "query.v1.billing.invoices.*",
        "query.v1.billing.lines.*",
    )
    assert grants.publish == (
        "invoices.v1.issued.*",
        "$JS.API.CONSUMER.INFO.USAGE.billing-usage-rolled-up",
        "$JS.API.CONSUMER.MSG.NEXT.USAGE.billing-usage-rolled-up",
        "$JS.ACK.USAGE.billing-usage-rolled-up.>",
        "$JS.API.CONSUMER.INFO.USAGE.billing-usage-period-closed",
        "$JS.API.CONSUMER.MSG.NEXT.USAGE.billing-usage-period-closed",
        "$JS.ACK.USAGE.billing-usage-period-closed.>",
        "$JS.API.CONSUMER.INFO.REPLAYS.billing-replay",
        "$JS.API.CONSUMER.MSG.NEXT.REPLAYS.billing-replay",
        "$JS.ACK.REPLAYS.billing-replay.>",
        "deadletters.v1.buried.billing-usage-rolled-up",
        "deadletters.v1.buried.billing-usage-period-closed",
        "_INBOX.>",
        "_R_.>",
    )


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_may_change_a_stream_or_say_everything(service: str) -> None:
    grants = service_grants(service)
    calls = {subject.split(".")[2:4][-1] for subject in grants.publish if subject.startswith("$JS.API.")}
    assert calls <= {"INFO", "MSG", "GET"}
    assert not {">", "*", "$JS.>", "$JS.API.>"} & {*grants.publish, *grants.subscribe}


@pytest.mark.parametrize(
    ("url", "tenant"),
    [
        ("nats://tenant-acme:word@hub:4222", "acme"),
        ("nats://tenant-a-b@hub", "a-b"),
        ("tls://operator:word@hub:4222", None),
        ("nats://node-tenant-1:word@hub", None),
        ("nats://hub:4222", None),
        ("", None),
    ],
)
def test_whose_address_it_is(url: str, tenant: str | None) -> None:
    assert tenant_of(url) == tenant


@given(st.lists(st.tuples(st.sampled_from([node_user, tenant_user]), NAMES), unique=True))
def test_no_two_users_share_a_variable(guests: list[tuple[object, str]]) -> None:
    users = [OPERATOR, *SERVICES, *(user(name) for user, name in guests if callable(user))]
    assert len({variable(PASSWORD, str(user)) for user in users}) == len(users)


def test_nats_server_takes_what_is_written(tmp_path: Path) -> None:
    nodes, tenants = ["a", "9", "-", "0-x", "n" * 63], ["a", "7", "-", "t" * 63]
    conf = Path(__file__).parents[3] / "deploy" / "nats"
    users = [OPERATOR, *SERVICES, *map(node_user, nodes), *map(tenant_user, tenants)]
    secret = {variable(PASSWORD, user): "word" for user in users}
    remotes = {variable(REMOTE, node_user(node)): '"nats-leaf://u:p@127.0.0.1:1"' for node in nodes}
    hub = {"HUB_NAME": "h", "HUB_HOST": '"127.0.0.1"', "HUB_PORT": "4222", "HUB_MONITOR": '"127.0.0.1:8222"'}
    hub |= {"HUB_LEAF_PORT": "7422", "HUB_STORE": f'"{tmp_path}"'}
    leaf = {"LEAF_NAME": "l", "LEAF_HOST": '"127.0.0.1"', "LEAF_PORT": "4223", "LEAF_MONITOR": '"127.0.0.1:8223"'}
    for name, include, text, own in (
        ("hub.conf", "accounts.conf", hub_accounts(nodes, tenants), hub),
        ("leaf.conf", "leaf_accounts.conf", leaf_accounts(nodes), leaf | remotes),
    ):
        (tmp_path / name).write_text((conf / name).read_text())
        (tmp_path / include).write_text(text)
        command = [str(SCRIPTS / "nats-server"), "-t", "-c", str(tmp_path / name)]
        done = subprocess.run(command, env={**os.environ, **secret, **own}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
