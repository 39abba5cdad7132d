"""`farside plan`: what it prints, what it refuses, and what it writes into a job file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contracts.jobs import JobSpec, Recompute
from libs.cli import jobfile, main
from libs.cli.errors import FAILED, USAGE

ROOT = Path(__file__).parents[3]
MODEL = (ROOT / "examples/planner/gpt-22b.yaml").read_text()
CLUSTER = (ROOT / "examples/planner/a100-1.yaml").read_text()
JOB = """\
name: gpt
kind: training # comments stay
command: [python, train.py]
resources: {cards: 8}
max_runtime_s: 3600
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    files = ["--model", str(folder / "model.yaml"), "--cluster", str(folder / "cluster.yaml")]
    return CliRunner().invoke(main.cli, ["plan", *files, *words])


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_tables_for_people(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 0
    first = result.stdout.splitlines()[1].split()
    assert first[:3] == ["1", "4", "1"]
    assert "gpt-22b: 22.1 billion parameters, 4 sequences of 2048 tokens an iteration; a100-1: 8 cards" in result.stderr
    assert "slower by" in result.stdout
    assert "GiB a card of 76.0 usable, even with full recompute" in result.stdout


def test_json_for_programs(folder: Path) -> None:
    told = json.loads(run(folder, "--json", "--top", "2").stdout)
    assert [one["rank"] for one in told["candidates"]] == [1, 2]
    first = told["candidates"][0]
    assert first["tp"] * first["pp"] * first["dp"] == told["cards"] == 8
    assert sum(first["time_s"].values()) == pytest.approx(first["iteration_s"])
    parts = [size for name, size in first["memory_gib"].items() if name != "total"]
    assert sum(parts) == pytest.approx(first["memory_gib"]["total"])
    assert {one["cause"] for one in told["lost"]} == {"slower", "memory"}


def test_one_layout_is_costed(folder: Path) -> None:
    words = "{tp: 8, microbatch: 4, recompute: full, sequence_parallel: false}"
    told = json.loads(run(folder, "--json", "--layout", words).stdout)
    assert told["candidates"][0]["iteration_s"] == pytest.approx(1.42, rel=0.05)
    assert told["lost"] == []
    too_large = run(folder, "--layout", "tp: 8, microbatch: 4")
    assert too_large.exit_code == FAILED
    assert "asks 86.0 GiB a card of 76.0 usable: 10.0 too many" in too_large.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tp: 3", "--layout: tp is 3: groups must lie inside nodes of 8 cards"),
        ("tp: 8, recompute: ful", 'recompute is "ful"; expected one of none, selective, full'),
        ("microbatch: 2", "tp is missing"),
        ("tp: [", "is not YAML"),
        ("tp: 8, precision: fp8", "card.peak_tflops has no fp8"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(folder: Path, words: str, message: str) -> None:
    result = run(folder, "--layout", words)
    assert result.exit_code == USAGE
    assert message in result.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("model", "heads: 64", "heads: 7", "model.yaml, line 5: heads is 7: hidden, 6144, does not divide by it"),
        ("model", "heads: 64", "heads: 64\nkv_heads: 7", "kv_heads is 7: heads, 64, does not divide by it"),
        ("model", "layers: 48", "layers: 0", "model.yaml, line 3: layers is 0; expected a whole number from 1 to"),
        ("model", "layers: 48", "layer: 48", "layer is no field of a model file, did you mean 'layers'?"),
        ("model", "attention: standard", "attention: quick", 'attention is "quick"; expected one of flash, standard'),
        ("model", "attention: standard", "precisions: []", "precisions is []; expected a list of 1 to 5 items"),
        ("model", "attention: standard", "precisions: [fp8]", "model.yaml: precisions is [fp8]: the cards of a100-1"),
        ("cluster", "cards_per_node: 8", "cards_per_node: 0", "cards_per_node is 0; expected a whole number from 1 to"),
        ("cluster", "nodes: 1", "nodes: 0", "cluster.yaml, line 3: nodes is 0; expected a whole number from 1 to"),
        ("cluster", "nodes: 1", "nodes: 999999", "nodes is 999999: with 8 cards each that is more than 1000000 cards"),
        ("cluster", "memory_gib: 80", "memory_gib: -1", "line 6: card.memory_gib is -1; expected a number above 0"),
        ("cluster", "memory_gib: 80", "memory_gib: 3", "card.reserved_memory_gib is 4: nothing is left of 3 GiB"),
        ("cluster", "gb_s: 300", "gb_s: .inf", "card_link.gb_s is"),
        ("cluster", "{bf16: 312, tf32: 156, fp32: 19.5}", "{}", "card.peak_tflops is empty: give the dense peak"),
        ("cluster", "node_link", "# node_link", "node_link is missing; expected a mapping with the fields gb_s, lat"),
    ],
)
def test_a_wrong_file_is_refused(folder: Path, file: str, old: str, new: str, message: str) -> None:
    change(folder / f"{file}.yaml", old, new)
    result = run(folder)
    assert result.exit_code == USAGE
    assert message in result.stderr


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "model.yaml").unlink()
    result = run(folder)
    assert result.exit_code == USAGE
    assert f"{folder / 'model.yaml'} cannot be read: No such file or directory" in result.stderr


def test_nothing_fits(folder: Path) -> None:
    change(folder / "cluster.yaml", "memory_gib: 80", "memory_gib: 10")
    result = run(folder)
    assert result.exit_code == FAILED
    assert "nothing fits" in result.stderr
    assert result.stderr.endswith("too many; add nodes\n")


def test_nothing_fits_without_recompute(folder: Path) -> None:
    change(folder / "cluster.yaml", "memory_gib: 80", "memory_gib: 57")
    change(folder / "cluster.yaml", "compute_headroom_pct: 10", "compute_headroom_pct: 0")
    result = run(folder)
    assert result.exit_code == FAILED
    assert "without recompute; tp " in result.stderr
    assert "write it as compute_headroom_pct, or add nodes" in result.stderr


def test_no_sizes_use_all_cards(folder: Path) -> None:
    change(folder / "cluster.yaml", "nodes: 1", "nodes: 7")
    result = run(folder)
    assert result.exit_code == FAILED
    assert "no sizes use all 56 cards" in result.stderr
    assert result.stderr.endswith("6 nodes could all be used\n")
    change(folder / "model.yaml", "global_batch: 4", "global_batch: 1")
    change(folder / "model.yaml", "layers: 48", "layers: 1")
    change(folder / "cluster.yaml", "nodes: 7", "nodes: 9999")
    assert run(folder).stderr.endswith("change one of them, or nodes\n")


def test_sizes_are_written_into_the_job(folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(JOB)
    result = run(folder, "--write", str(job))
    assert result.exit_code == 0
    line = "parallel: {tp: 4, pp: 1, dp: 2, microbatch: 2, virtual: 1, recompute: selective, precision: bf16}\n"
    assert job.read_text() == JOB + line
    spec = jobfile.parse(job.read_text(), job_id="00000000-0000-7000-8000-000000000000", tenant="acme")
    assert isinstance(spec, JobSpec)
    assert spec.parallel is not None
    assert spec.parallel.recompute is Recompute.SELECTIVE
    assert "asks" not in result.stderr


@pytest.mark.parametrize(
    "before", ["parallel:\n  tp: 1\n  dp: 8\n# the end\n", "parallel: {tp: 1,\n  dp: 8}\n# the end\n"]
)
def test_sizes_that_are_there_are_replaced(folder: Path, before: str) -> None:
    job = folder / "job.yaml"
    job.write_text(before + JOB)
    assert run(folder, "--write", str(job)).exit_code == 0
    lines = job.read_text().splitlines()
    assert lines[0].startswith("parallel: {tp: 4, ")
    assert lines[1:] == ["# the end", *JOB.splitlines()]


def test_a_job_for_other_cards_is_told(folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(JOB.replace("cards: 8", "cards: 4").rstrip())
    result = run(folder, "--write", str(job))
    assert "asks 1 x 4 cards, the plan is for 8: set members and resources.cards to match" in result.stderr
    assert job.read_text().splitlines()[-1].startswith("parallel: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: gpt\n", "nothing was written: 2 mistakes in"),
        (
            "{name: gpt, kind: training, command: [a], max_runtime_s: 60}\n",
            "is one mapping in braces: write its fields",
        ),
    ],
)
def test_a_job_file_that_cannot_be_written_stays(folder: Path, text: str, message: str) -> None:
    job = folder / "job.yaml"
    job.write_text(text)
    result = run(folder, "--write", str(job))
    assert result.exit_code == USAGE
    assert message in result.stderr
    assert job.read_text() == text


def test_the_examples_plan() -> None:
    words = ["plan", "--model", str(ROOT / "examples/planner/gpt-70b.yaml")]
    result = CliRunner().invoke(main.cli, [*words, "--cluster", str(ROOT / "examples/planner/h100-96.yaml"), "--json"])
    first = json.loads(result.stdout)["candidates"][0]
    assert (first["tp"], first["pp"], first["dp"]) == (8, 2, 48)
