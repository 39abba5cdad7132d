"""Orders about nodes, and files that commands write; what inventory says is the contracts' own example."""

import json
from pathlib import Path

import pytest

from contracts.fleet import NodeReply
from libs.cli import node, output
from libs.cli.errors import FAILED, USAGE, CliError, FileError

EXAMPLES = Path(__file__).parents[3] / "contracts" / "examples" / "query.inventory.node.v1"


def reply(name: str, **changes: object) -> NodeReply:
    return NodeReply.model_validate(json.loads((EXAMPLES / f"{name}.json").read_text())["reply"] | changes)


@pytest.mark.parametrize("order", ["cordon", "drain"])
def test_a_retired_node_is_not_ordered_about(order: str) -> None:
    with pytest.raises(CliError, match=r"node a is retired, .* `farside node uncordon a` first") as refused:
        node.standing(reply("good-quarantined", standing="retired"), order, "a")
    assert refused.value.exit_code == FAILED


@pytest.mark.parametrize(("standing", "order"), [("retired", "uncordon"), ("retiring", "cordon"), ("free", "drain")])
def test_what_can_have_an_effect_is_sent(standing: str, order: str) -> None:
    found = reply("good-quarantined", standing=standing)
    assert node.standing(found, order, "a") == found.state


def test_a_node_that_no_agent_announced_takes_no_order() -> None:
    with pytest.raises(CliError, match="no agent has announced node a"):
        node.standing(reply("good-declared-only"), "cordon", "a")


def test_a_file_is_written_with_its_folder_or_refused_in_words(tmp_path: Path) -> None:
    output.write(tmp_path / "new" / "fleet.csv", "node\n")
    assert (tmp_path / "new" / "fleet.csv").read_text() == "node\n"
    with pytest.raises(FileError, match=r"fleet\.csv/a cannot be written: .*: name another place") as refused:
        output.write(tmp_path / "new" / "fleet.csv" / "a", "")
    assert refused.value.exit_code == USAGE


def test_an_order_that_changes_nothing_says_so_with_the_reason_that_stands() -> None:
    found = reply("good-quarantined", standing="cordoned", order="cordoned by operator/ops: disk swap")
    assert node.already(found, "a") == (
        "node a is cordoned already (cordoned by operator/ops: disk swap): nothing was sent, the new reason is not kept"
    )
    assert node.already(reply("good-quarantined", order=""), "a") == "node a is free already: nothing was sent"
