"""The demo, as a newcomer runs it: everything holds, and nothing is left behind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

LIMIT_S = 240
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


@pytest.mark.timeout(LIMIT_S + 30)
def test_a_training_job_survives_the_death_of_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plot = tmp_path / "curve.png"
    done = subprocess.run(
        [FARSIDE, "demo", "--json", "--plot", plot], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
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
    assert plot.read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("farside")] == []
    assert leftovers(tmp_path) == []
