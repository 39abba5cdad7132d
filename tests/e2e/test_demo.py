"""The demo, as a newcomer runs it: everything holds, its logs can be followed, and nothing is left running."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from contracts.registry import AGENT, SERVICES
from deploy.local.fleet import NODES
from tests.e2e.fleet import check_rights

LIMIT_S = 240
TRACE_ID_CHARS = 32
WITHOUT_TRACE = {"placement.stale"}  # a plan that was given up before the job's row was read
FARSIDE = Path(sys.executable).with_name("farside")
PNG = b"\x89PNG\r\n\x1a\n"


def leftovers(folder: Path) -> list[str]:
    """Processes that still work below `folder`."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(folder) in words:
            found.append(words)
    return found


def check_accounts(told: dict[str, Any]) -> None:
    """What was measured is what was held, what is billed is what is computed anew, and each alarm came once."""
    attempts = told["metering"]["attempts"]
    assert sorted((one["job"], one["attempt"]) for one in attempts if one["killed"]) == [("digits-train", 1)]
    for one in attempts:
        assert abs(one["gpu_ms"] - one["held_ms_x_cards"]) <= one["tolerance_ms"], one
    assert told["metering"]["gpu_ms"] == sum(one["gpu_ms"] for one in attempts)
    assert told["metering"]["windows"] > len(attempts)
    assert told["billing"]["invoice_total_micro"] == told["billing"]["recomputed_total_micro"] > 0
    alerts = {one["name"]: (one["fired"], one["resolved"]) for one in told["alerts"]}
    assert alerts == {"NodeLost": (1, 1), "CheckpointFailed": (1, 1)}


def check_trace(trace: dict[str, Any]) -> None:
    """One trace through at least seven services, without a hole."""
    assert len(trace["services"]) >= 7, trace["services"]
    assert trace["spans"] > 50
    assert trace["orphans"] == 0


def check_logs(folder: Path) -> None:
    """Every line of Farside's own processes is JSON and says who, when and what; what concerns a job says its trace."""
    told_by: dict[str, set[str]] = {}
    for part in (*SERVICES, *(node.name for node in NODES)):
        for text in (folder / f"{part}.log").read_text().splitlines():
            line: dict[str, Any] = json.loads(text)
            assert {"ts", "level", "event", "service"} <= line.keys(), line
            if line["service"] == AGENT:
                assert line["node"] == part, line
            if "job" in line and line["event"] not in WITHOUT_TRACE:
                assert len(line["trace"]) == TRACE_ID_CHARS, line
                told_by.setdefault(line["job"], set()).add(line["service"])
    assert max(len(services) for services in told_by.values()) >= 4, told_by


@pytest.mark.timeout(LIMIT_S + 30)
def test_a_training_job_survives_the_death_of_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plot, kept = tmp_path / "curve.png", tmp_path / "kept"
    command = [FARSIDE, "demo", "--json", "--plot", plot, "--dir", kept]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    told: dict[str, Any] = json.loads(done.stdout)
    train = told["train"]
    assert told["ok"] is True
    assert (train["outcome"], train["attempts"]) == ("succeeded", 2)
    assert sorted(train["nodes"]) == ["central-1", "central-2"]
    assert train["second_checkpoint_step"] <= train["resumed_from_step"] <= train["killed_at_step"]
    assert train["final_accuracy"] >= 0.95
    assert train["max_loss_difference"] <= 1e-9
    assert (told["infer"]["state"], told["infer"]["tier"]) == ("running", "remote")
    assert (told["batch"]["outcome"], told["batch"]["tier"]) == ("succeeded", "remote")
    assert told["greedy"]["outcome"] == "rejected"
    check_accounts(told)
    check_trace(told["trace"])
    assert plot.read_bytes().startswith(PNG)
    check_logs(kept / "stack" / "logs")
    check_rights(kept / "stack" / "logs")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("farside")] == []
    assert leftovers(tmp_path) == []
