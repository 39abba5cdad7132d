"""The training script: restored in the middle, it goes on bit by bit as if nothing had happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    subprocess.run([sys.executable, DIGITS / "dataset.py", folder], check=True, capture_output=True)
    return folder


def train(folder: Path, dataset: Path, steps: int) -> dict[int, float]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FARSIDE_")}
    env |= {"FARSIDE_LOCAL_DIR": str(folder), "FARSIDE_LOCAL_DATASET": str(dataset), "DIGITS_STEPS": str(steps)}
    env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, DIGITS / "train.py"], check=True, capture_output=True, env=env)
    points = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return {point["step"]: point["metrics"]["loss"] for point in points}


def test_the_dataset_is_the_same_everywhere(dataset: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, DIGITS / "dataset.py", tmp_path], check=True, capture_output=True)
    for path in dataset.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_a_restored_run_has_the_losses_of_an_uninterrupted_one(dataset: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", dataset, 60)
    train(tmp_path / "parts", dataset, 37)
    parts = train(tmp_path / "parts", dataset, 60)
    assert parts == whole
    assert len(whole) == 60
    assert whole[60] < whole[1]
