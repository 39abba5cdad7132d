"""The commands about the fleet against a running stack: orders, history, files, grades and capacity."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.cli.output import WIDTH
from tests.e2e.shell import Shell, running_stack
from tests.waiting import until_sync

WAIT_S = 60


@pytest.fixture(scope="module")
def farside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_stack(tmp_path_factory.mktemp("fleet")) as shell:
        yield shell


def state(farside: Shell, node: str) -> str:
    return str(farside("node", node, "--json").json()["state"]["state"])


def ready(farside: Shell, node: str) -> None:
    until_sync(lambda: state(farside, node) == "ready", WAIT_S, f"{node} to be ready")


def test_a_node_tells_its_checks_and_its_history(farside: Shell) -> None:
    ready(farside, "central-1")
    shown = farside("node", "central-1")
    assert shown.status == 0, shown.err
    assert "cards skipped" in shown.out
    assert "2 x H200" in shown.out
    changes = farside("node", "central-1", "--history", "--json").json()["changes"]
    assert [(one["state"], one["cause"]) for one in reversed(changes)][:3] == [
        ("announced", "announced"),
        ("checked", "checked"),
        ("ready", "checked"),
    ]


def test_orders_are_carried_out_and_kept(farside: Shell) -> None:
    ready(farside, "central-2")
    done = farside("node", "cordon", "central-2", "--reason", "disk swap")
    assert (done.status, done.err) == (
        0,
        "node central-2 is ready (cordoned): cordoned by operator: disk swap\n",
    )
    again = farside("node", "cordon", "central-2", "--reason", "again")
    assert again.status == 0
    assert "node central-2 is cordoned already (cordoned by operator: disk swap): nothing was sent" in again.err
    assert farside("node", "drain", "central-2", "--reason", "rack 7", "--json").json()["state"] == "draining"
    assert farside("node", "uncordon", "central-2", "--reason", "done", "--json").json()["cordoned"] is False
    causes = [one["cause"] for one in farside("node", "central-2", "--history", "--json").json()["changes"]]
    assert causes[:3] == ["uncordoned", "drained", "cordoned"], "an order that changed nothing left nothing"


def test_a_node_that_is_not_there_is_said_so(farside: Shell) -> None:
    for words in (("node", "nowhere"), ("node", "drain", "nowhere", "--reason", "x")):
        done = farside(*words)
        assert (done.status, "there is no node nowhere" in done.err) == (1, True)
    assert farside("node", "drain", "central-1").status == 2, "no order without a reason"


def test_a_fleet_is_declared_from_a_file_and_written_again(farside: Shell, tmp_path: Path) -> None:
    file = tmp_path / "fleet.csv"
    file.write_text(
        "node,cpu_milli,memory_bytes,cards,card_model,rack\ncentral-1,2000,1,8,A100,r7\nspare-1,1,1,1,T4,r8\n"
    )
    done = farside("nodes", "import", file, "--reason", "audit")
    assert done.err == "2 nodes read: 2 added, 0 changed, 0 as before, 0 withdrawn\n"
    listed = farside("nodes", "--declared").out
    assert max(map(len, listed.splitlines())) <= WIDTH
    assert "cards: declared 8, announced 2" in " ".join(listed.split())
    assert "spare-1" in listed
    assert "1 declared node without an agent" in farside("nodes").err
    assert "differs" in farside("node", "central-1").out
    written = tmp_path / "written.csv"
    assert farside("nodes", "export", "--to", written).status == 0
    assert "r7" in next(line for line in written.read_text().splitlines() if line.startswith("central-1,"))
    again = farside("nodes", "import", written, "--reason", "as it is", "--json").json()
    assert (again["added"], again["changed"]) == (3, 1)
    broken = tmp_path / "broken.csv"
    broken.write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,T4\na,1,1,1,T4\n")
    refused = farside("nodes", "import", broken, "--reason", "x")
    assert refused.status == 2
    assert "line 3, field node is 'a': line 2 has it already" in refused.err


def test_grades_and_capacity_are_shown_and_written(farside: Shell, tmp_path: Path) -> None:
    grades = {one["node"]: one for one in farside("nodes", "--grade", "--json").json()["grades"]}
    assert grades["central-1"]["reasons"][2] == "generation 0.90 (weight 0.2): hopper"
    assert "training capacity" in farside("nodes", "--grade").out
    assert "central" in farside("capacity").out
    assert farside("capacity", "--idle").status == 0
    for _ in range(2):
        done = farside("capacity", "--write", tmp_path / "capacity")
        assert done.status == 0, done.err
    assert sorted(path.name for path in (tmp_path / "capacity").iterdir()) == ["capacity-v1.json", "capacity-v1.md"]
    document = json.loads((tmp_path / "capacity" / "capacity-v1.json").read_text())
    assert (document["assessment"]["version"], len(document["nodes"])) == (1, 4)
    page = (tmp_path / "capacity" / "capacity-v1.md").read_text()
    assert page.startswith("# Capacity, version 1\n")
    assert "| central-1 | central |" in page


def test_both_breakers_are_shown(farside: Shell) -> None:
    told = farside("breaker", "status", "--json").json()["breakers"]
    assert [(one["kind"], one["is_open"]) for one in told] == [("silence", False), ("faults", False)]
    assert "it holds nothing" in farside("breaker", "reset", "looked").err
