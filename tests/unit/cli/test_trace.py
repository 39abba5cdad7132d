"""`farside trace`: from files alone, for people, for programs and as a picture."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

import libs.cli
from libs.cli.errors import FAILED, UNREACHABLE, USAGE
from libs.cli.trace import trace
from tests.unit.journey import stories
from tests.unit.journey.scribe import JOB, OTHER

PNG = b"\x89PNG\r\n"
SPAN = {"trace_id": str, "span_id": str, "parent_span_id": str, "name": str, "service": str, "node": str, "start": str}
ROW = {
    "start": str,
    "duration_ms": float,
    "service": str,
    "node": str,
    "member": str,
    "name": str,
    "words": str,
    "services": list,
    "deliveries": int,
    "count": int,
    "spans": int,
    "linked": bool,
    "error": bool,
    "state": str,
    "trace_id": str,
    "span_id": str,
    "links": list,
}
DOCUMENT = {
    "trace_id": str,
    "job_id": str,
    "services": list,
    "spans": int,
    "orphans": list,
    "parent_killed": list,
    "open": list,
    "redeliveries": int,
    "damaged_lines": int,
    "left_out": int,
    "rows": list,
}


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack that is down; its traces are there."""
    for name in ("FARSIDE_NATS_URL", "FARSIDE_TRACE_DIR", "FARSIDE_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "traces").mkdir()
    stories.neighbour(tmp_path / "traces", stories.whole(tmp_path / "traces"))
    return tmp_path


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(trace, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


def data(*arguments: str | Path) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return cast("dict[str, Any]", json.loads(result.stdout))


def shape(document: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in document.items()}


def test_people_see_a_waterfall(stack: Path) -> None:
    result = call(JOB, "--stack", stack)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 18
    assert all(len(line) <= 120 for line in result.stdout.splitlines())
    assert "run attempt 1 [killed]" in result.stdout
    assert "of 7 services" in result.stderr
    assert "orphans 0; parent killed 1; redeliveries 1" in result.stderr
    killed = (
        "parent killed: process attempts.v1.saved.{node} (checkpoint): died with agent (node-1), pid 11, last active"
    )
    assert f"{killed} at +5.012s" in result.stderr


def test_programs_get_json(stack: Path) -> None:
    document = data(JOB, "--dir", stack)
    assert shape(document) == DOCUMENT
    assert {json.dumps(sorted(row)) for row in document["rows"]} == {json.dumps(sorted(ROW))}
    assert all(shape(row) == ROW for row in document["rows"])
    [span] = document["parent_killed"]
    assert shape(span) == {**SPAN, "died_with": dict}
    last_active = "2026-03-01T12:00:05.012000Z"
    assert span["died_with"] == {"service": "agent", "node": "node-1", "pid": 11, "last_active": last_active}
    assert document["job_id"] == JOB
    assert document["orphans"] == document["open"] == []
    assert [row["words"] for row in document["rows"]][:3] == ["submit", "accept", "place"]
    assert document["rows"][0]["start"] == "2026-03-01T12:00:00Z"


def test_everything(stack: Path) -> None:
    few, all_rows = data(JOB, "--stack", stack), data(JOB, "--stack", stack, "--all")
    assert len(all_rows["rows"]) == few["spans"] + 2
    assert "publish work.v1.run.{node}" in call(JOB, "--stack", stack, "--all").stdout


def test_the_folder_is_the_stacks_or_the_one_of_the_environment(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSIDE_DIR", str(stack))
    assert data(JOB)["job_id"] == JOB
    monkeypatch.setenv("FARSIDE_DIR", "/nonexistent")
    result = call(JOB)
    assert result.exit_code == FAILED
    assert "no folder /nonexistent/traces of spans: name the stack's directory with --stack" in result.stderr
    monkeypatch.setenv("FARSIDE_TRACE_DIR", "/nothing")
    assert "no folder /nothing of spans, which FARSIDE_TRACE_DIR names:" in call(JOB).stderr
    monkeypatch.setenv("FARSIDE_TRACE_DIR", str(stack / "traces"))
    assert data(JOB)["job_id"] == JOB
    assert call(JOB, "--stack", "/nonexistent").exit_code == FAILED, "what is said goes before what is set"


def test_an_unknown_id(stack: Path) -> None:
    result = call(JOB.replace("1", "7"), "--stack", stack)
    assert result.exit_code == FAILED
    assert "no span of job" in result.stderr


def test_while_the_stack_is_down_the_beginning_of_an_id_does(stack: Path) -> None:
    ambiguous = call(JOB[:20], "--stack", stack)
    assert ambiguous.exit_code == UNREACHABLE
    assert call("digits-train", "--stack", stack).exit_code == UNREACHABLE
    (stack / "traces" / "scheduler-2.jsonl").unlink()
    assert data(JOB[:20], "--stack", stack)["job_id"] == JOB
    assert OTHER not in call(JOB[:20], "--stack", stack, "--json").stdout


def test_a_stack_whose_supervisor_is_gone_still_has_its_files(stack: Path) -> None:
    store = dict.fromkeys(("endpoint", "access_key", "secret_key", "bucket"), "x")
    facts = {"nats_url": "nats://127.0.0.1:1", "s3": store, "supervisor": None}
    (stack / "stack.json").write_text(json.dumps(facts))
    assert data(JOB, "--stack", stack)["job_id"] == JOB
    (stack / "traces" / "scheduler-2.jsonl").unlink()
    assert data(JOB[:20], "--stack", stack)["job_id"] == JOB


def test_the_picture(stack: Path) -> None:
    file = stack / "journey.PNG"
    result = call(JOB, "--stack", stack, "--plot", file)
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(PNG)
    assert f"drawn: {file}" in result.stderr


@pytest.mark.parametrize("name", ["journey.xyz", "journey", "journey.pgf", ".png", "nowhere/journey.png"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_read(name: str, stack: Path) -> None:
    result = call("digits-train", "--stack", stack / "nothing", "--plot", stack / name)
    assert result.exit_code == USAGE
    [line] = result.stderr.splitlines()
    assert line.startswith(f"farside: --plot {stack / name}")
    assert "nowhere is no folder" in line or ".pdf, .png," in line
    assert not (stack / name).parent.joinpath("journey.png").exists()
    assert not (stack / "nowhere").exists()


def test_a_picture_that_cannot_be_written_after_all(stack: Path) -> None:
    (stack / "full.png").symlink_to("/dev/full")
    result = call(JOB, "--stack", stack, "--plot", stack / "full.png")
    assert result.exit_code == USAGE
    assert "full.png could not be written (No space left on device): name another file" in result.stderr


def test_without_matplotlib_the_picture_says_what_is_missing(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "libs.cli.trace_plot", raising=False)
    monkeypatch.delattr(libs.cli, "trace_plot", raising=False)
    result = call(JOB, "--stack", stack, "--plot", stack / "journey.png")
    assert result.exit_code == USAGE
    assert "--plot needs matplotlib, which is not installed: pip install 'farside[local]'" in result.stderr
