"""A stack whose fleet is empty: each command says so, in words and in JSON, and a job waits with the reason."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.cli.nodes import NO_NODES
from tests.e2e.shell import Shell, running_stack
from tests.waiting import until_sync

pytestmark = pytest.mark.timeout(180)

PARTS = ("postgres", "nats", "seaweed", "provision", "inventory", "scheduler")


@pytest.fixture(scope="module")
def farside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_stack(tmp_path_factory.mktemp("empty"), *PARTS) as shell:
        yield shell


@pytest.mark.parametrize(
    ("words", "told", "found"),
    [
        ("nodes", NO_NODES, {"nodes": [], "declared": []}),
        ("nodes --grade", NO_NODES, {"grades": []}),
        ("nodes --declared", "no node is declared: `farside nodes import`", {"declared": []}),
        ("capacity --idle", NO_NODES, {"idle": []}),
    ],
)
def test_lists_of_nodes_are_empty(farside: Shell, words: str, told: str, found: dict[str, object]) -> None:
    done = farside(*words.split())
    assert (done.status, done.out, done.err) == (0, "", f"{told}\n")
    assert farside(*words.split(), "--json").json() == found


def test_the_capacity_is_none_and_can_be_written(farside: Shell, tmp_path: Path) -> None:
    done = farside("capacity")
    assert (done.status, done.err) == (0, f"{NO_NODES}\n")
    assert [line.split()[:4] for line in done.out.splitlines() if line.startswith(("central", "remote", "shared"))] == [
        [tier, "0", "0", "0"] for tier in ("central", "remote", "shared")
    ]
    assert farside("capacity", "--json").json()["rows"] == []
    assert farside("capacity", "--write", tmp_path).status == 0
    assert json.loads((tmp_path / "capacity-v1.json").read_text())["nodes"] == []
    assert (tmp_path / "capacity-v1.md").read_text().endswith("## Must not be released\n\nNone.\n")


def test_a_job_waits_for_nodes_and_the_queue_says_so(farside: Shell) -> None:
    done = farside("queue")
    assert (done.status, done.out, done.err) == (0, "", "no job of acme waits\n")
    assert farside("queue", "--tenant", "_").err == "no job waits\n"
    assert farside("queue", "--json").json()["jobs"] == []
    assert farside("quota", "acme").status == 0
    job = farside.submit("early")
    [waiting] = until_sync(lambda: farside("queue", "--json").json()["jobs"], 20, "the job to wait")
    assert (waiting["job_id"], waiting["reason"]["code"]) == (job, "waiting_for_nodes")
    assert "waiting_for_nodes" in farside("queue").out
    used = {line["resource"]: line["used"] for line in farside("quota", "acme", "--json").json()["tenants"][0]["lines"]}
    assert used == {"gpu_ms": 0, "card_milli": 0, "jobs": 0}
