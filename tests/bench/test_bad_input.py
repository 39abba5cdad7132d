"""A mistake in the options or files of a benchmark: one line that names file, line and field, and exit status 2."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from libs.cli import main as cli
from libs.cli.errors import USAGE, FileError
from tests.bench.__main__ import main
from tests.sim.__main__ import main as sim
from tests.unit.planner.published import checked

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,4,T4\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,4000,1024,1,300\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    (tmp_path / "pods.csv").write_text(PODS, encoding="utf-8")
    (tmp_path / "broken-nodes.csv").write_text(NODES + "b,64000,262144,few,T4\n", encoding="utf-8")
    (tmp_path / "broken-pods.csv").write_text(PODS + "q,4000\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FARSIDE_DATA", str(tmp_path / "nowhere"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("placement --nodes missing.csv --pods pods.csv", "missing.csv cannot be read (No such file or directory)"),
        ("placement --nodes nodes.csv --pods missing.csv", "missing.csv cannot be read (No such file or directory)"),
        ("placement --nodes nodes.csv", "--nodes is given without --pods"),
        ("placement --pods pods.csv", "--pods is given without --nodes"),
        ("placement --nodes broken-nodes.csv --pods pods.csv", "broken-nodes.csv, line 3: field gpu is 'few'"),
        ("placement --nodes nodes.csv --pods broken-pods.csv", "broken-pods.csv, line 3: field memory_mib is missing"),
        ("placement --cards 3", "unrecognized arguments: --cards 3"),
        ("placements", "argument name: invalid choice: 'placements'"),
        ("planner", "no public data in"),
        ("", "the following arguments are required: name"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_benchmark_says_in_one_line_what_is_wrong(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(words.split())
    except SystemExit as ended:
        status = ended.code
    told = capsys.readouterr()
    assert (status, told.out) == (USAGE, "")
    assert told.err.startswith("just bench")
    assert told.err.count("\n") == 1
    assert said in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes 0", "argument --nodes: '0' is no whole number from 1 to 1000000"),
        ("--nodes -5", "argument --nodes: "),
        ("--nodes 5 --jobs x", "argument --jobs: 'x' is no whole number"),
        ("--nodes 5 --load 0", "argument --load: '0' is no share of the cards"),
        ("--nodes 5 --load nan", "argument --load: 'nan' is no share of the cards"),
        ("--seeds 9-3", "argument --seeds: '9-3' has no seed"),
    ],
)
def test_so_does_the_simulator(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        sim(words.split())
    told = capsys.readouterr().err
    assert ended.value.code == USAGE
    assert told.startswith(f"just sim: {said}")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("openb --nodes missing.csv --pods pods.csv", "missing.csv cannot be read"),
        ("openb --nodes broken-nodes.csv --pods pods.csv", "broken-nodes.csv, line 3: field gpu is 'few'"),
        ("openb --nodes nodes.csv --pods broken-pods.csv", "broken-pods.csv, line 3: field memory_mib is missing"),
        ("openb --nodes nodes.csv", "'--pods'"),
        ("openb --nodes nodes.csv --pods pods.csv --seeds 51-42", "'51-42' must go upwards"),
        ("openb --nodes nodes.csv --pods pods.csv --seeds x", "'x' is no number and no range"),
        ("openb --nodes nodes.csv --pods pods.csv --seeds ²", "'²' is no number and no range"),
        ("openb --nodes nodes.csv --pods pods.csv --policy nope", "'nope' is not one of"),
        ("philly --traces nowhere --cards 8", "'nowhere' does not exist"),
        ("philly --traces . --cards 8", "holds no file that ends in .trace"),
        ("philly --traces . --cards 0", "'--cards': 0 is not in the range"),
        ("philly --traces . --cards 9999999999", "'--cards': 9999999999 is not in the range"),
        ("philly --traces . --cards 8 --policy nope", "'nope' is not one of"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_replay_refuses_what_it_cannot_run(words: str, said: str) -> None:
    done = CliRunner().invoke(cli.cli, ["bench", *words.split()])
    assert done.exit_code == USAGE
    assert said in done.output
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"model": "22B", "gpus": "x"}, "t.csv, line 3: field gpus is 'x': it must be a number"),
        ({"model": "22B", "gpus": None}, "t.csv, line 3: field gpus is None"),
        ({"model": "23B", "gpus": "8"}, "t.csv, line 3: field model is '23B': it must be one of 22B, "),
    ],
)
def test_a_broken_row_of_published_figures_is_named(row: dict[str, str], said: str) -> None:
    with pytest.raises(FileError) as refused:
        checked("t.csv, line 3", row)
    assert str(refused.value).startswith(said)
