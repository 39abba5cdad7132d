"""openb traces: what is read of them, what is said of broken rows, and that published results come out again."""

import csv
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

from deploy.replay.cli import bench
from deploy.replay.openb import arrivals, fleet_of, read_nodes, read_tasks
from deploy.replay.openb_bench import PERCENT, run
from libs.cli.errors import FileError
from services.scheduler.core.arrays import CARD
from tests.bench.placement.fleets import NODES_FILE, PODS_FILE, made_up
from tests.data import public_data

NODES = "sn,cpu_milli,memory_mib,gpu,model\nb,64000,262144,2,P100\na,96000,393216,8,G2\nc,32000,262144,0,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
TASK = "p,4000,1024,1,470,G2|T4,LS\n"
PUBLISHED = "published_unallocated.csv"


def written(folder: Path, text: str) -> Path:
    file = folder / "file.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_nodes_with_cards_in_order_of_name(tmp_path: Path) -> None:
    nodes = read_nodes(written(tmp_path, NODES))
    assert [(node.name, node.cards, node.model) for node in nodes] == [("a", 8, "g2"), ("b", 2, "p100")]
    fleet = fleet_of(nodes)
    assert (fleet.models, fleet.card_node.tolist()) == (("g2", "p100"), [0] * 8 + [1] * 2)
    assert fleet.card_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]


def test_tasks_with_shares_models_and_without_cards(tmp_path: Path) -> None:
    text = PODS + TASK + "q,1000,1,0,0,,BE\nr,8000,2,8,1000,,BE\n"
    part, none, many = read_tasks(written(tmp_path, text))
    assert (part.share, part.models, part.cpu_milli) == (470_000, ("g2", "t4"), 4000)
    assert (none.cards, many.cards, many.share) == (0, 8, CARD)


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_part_of_names(tmp_path: Path) -> None:
    nodes = read_nodes(written(tmp_path, "\ufeff" + NODES.replace("\n", "\r\n")))
    assert [(node.name, node.model) for node in nodes] == [("a", "g2"), ("b", "p100")]


def test_five_columns_are_enough(tmp_path: Path) -> None:
    [task] = read_tasks(written(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,1,1000\n"))
    assert task.models == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sn,cpu_milli\n", ", line 1: no column memory_mib, gpu, model"),
        (NODES + "d,x,1,1,T4\n", ", line 5: field cpu_milli is 'x'"),
        (NODES + f"d,{'9' * 5000},1,1,T4\n", ", line 5: field cpu_milli is '999"),
        (NODES + "d,1,-1,1,T4\n", ", line 5: field memory_mib is '-1'"),
        (NODES + "d,1,1,1.5,T4\n", ", line 5: field gpu is '1.5'"),
        (NODES + "a,1,1,1,T4\n", ", line 5: field sn is 'a'"),
        (NODES + "d,1,1,1,\n", ", line 5: field model is ''"),
        (NODES + "d,1\n", ", line 5: field memory_mib is missing"),
        (NODES + "d,1,1,1,T4,1\n", ", line 5: the row has more fields"),
        ("sn,cpu_milli,memory_mib,gpu,model\nc,1,1,0,\n", "has no node with cards"),
    ],
)
def test_a_broken_node_is_named_with_its_line_and_field(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(FileError) as caught:
        read_nodes(file)
    assert f"{file}{said if said.startswith(',') else ' ' + said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TASK + "p,1,1,1,1001,,\n", ", line 3: field gpu_milli is '1001'"),
        (TASK + "p,1,1,1,0,,\n", ", line 3: field gpu_milli is '0'"),
        (TASK + "p,1,1,0,10,,\n", ", line 3: field gpu_milli is '10'"),
        (TASK + "p,1,1,2,500,,\n", ", line 3: field gpu_milli is '500'"),
        (TASK + "p,,1,1,500,,\n", ", line 3: field cpu_milli is ''"),
        ("p,1,1,0,0,,\n", "has no task that asks cards"),
    ],
)
def test_a_broken_task_is_named_with_its_line_and_field(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, PODS + text)
    with pytest.raises(FileError) as caught:
        read_tasks(file)
    assert f"{file}{said if said.startswith(',') else ' ' + said}" in str(caught.value)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no-such\.csv cannot be read"):
        read_nodes(tmp_path / "no-such.csv")


def test_all_tasks_come_once_in_an_order_of_chance_and_then_more_of_them() -> None:
    load = made_up()
    asked = sum(task.cards * task.share for task in load.tasks)
    more = arrivals(load.tasks, asked, 42, 130)
    assert sorted(map(repr, more[: len(load.tasks)])) == sorted(map(repr, load.tasks))
    assert more[: len(load.tasks)] != list(load.tasks)
    assert sum(task.cards * task.share for task in more) == pytest.approx(1.3 * asked, rel=0.01)
    assert len(arrivals(load.tasks, asked // 2, 42, 100)) < len(load.tasks)
    assert arrivals(load.tasks, asked, 42, 130) == more
    assert arrivals(load.tasks, asked, 43, 130) != more


def test_the_same_seed_gives_the_same_and_no_card_is_given_twice() -> None:
    load = made_up()
    first, again = (run(load.nodes, load.tasks, 1, "farside") for _ in range(2))
    assert first.unallocated == again.unallocated
    assert len(first.unallocated) == PERCENT + 1
    assert first.unallocated[0] == 100
    assert all(left >= right >= 0 for left, right in zip(first.unallocated, first.unallocated[1:], strict=False))


def test_the_command_prints_every_policy_and_mark(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES, encoding="utf-8")
    pods.write_text(PODS + TASK * 3, encoding="utf-8")
    picture = tmp_path / "left.png"
    command = ["openb", "--nodes", str(nodes), "--pods", str(pods), "--seeds", "1-2", "--workers", "1"]
    done = CliRunner().invoke(bench, [*command, "--plot", str(picture)], catch_exceptions=False)
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["random", "bestfit", "fgd", "farside"]
    assert picture.stat().st_size > 0
    wrong = CliRunner().invoke(bench, [*command, "--seeds", "3-1"])
    assert wrong.exit_code == 2
    assert "3-1" in wrong.stderr


@pytest.mark.timeout(300)
def test_it_agrees_with_what_was_published_and_farside_leaves_less() -> None:
    """Two seeds of the ten; the whole of it is `farside bench openb`."""
    folder = public_data("openb")
    nodes, tasks = read_nodes(folder / NODES_FILE), read_tasks(folder / PODS_FILE)
    with (folder / PUBLISHED).open(encoding="utf-8", newline="") as lines:
        told = {
            row["policy"].partition("-")[2].lower(): float(row["unalloc_median"])
            for row in csv.DictReader(lines)
            if row["workload"] == "openb_pod_list_default" and row["arrival_pct"] == str(PERCENT)
        }
    left = {
        policy: median(run(nodes, tasks, seed, policy).unallocated[PERCENT] for seed in (42, 43))
        for policy in ("random", "bestfit", "fgd", "farside")
    }
    for policy in ("random", "bestfit", "fgd"):
        assert left[policy] == pytest.approx(told[policy], abs=0.5), policy
    assert left["farside"] <= 0.87 * left["fgd"]
