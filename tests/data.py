"""Where the public data lies that cores are measured against; it is no part of this repository."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VARIABLE = "FARSIDE_DATA"
ORIGINALS = {
    "openb": "github.com/hkust-adsl/kubernetes-scheduler-simulator, data/csv",
    "philly": "github.com/stanford-futuredata/gavel, scheduler/traces/msr/seed=0",
    "parallelism": "Korthikanti et al. 2022 (table 5), github.com/NVIDIA/Megatron-LM, github.com/cli99/llm-analysis",
    "gpu": "NVIDIA's XID catalogue and GPU memory error management guide",
}


def data_home() -> Path:
    """The folder of all public data: FARSIDE_DATA, else `shared/data` beside the checkout."""
    return Path(os.environ.get(VARIABLE) or ROOT.parent / "shared" / "data")


def public_data(name: str) -> Path:
    """The folder of one data set; skips the test where no data is at hand at all, fails where only this is missing."""
    home = data_home()
    if not home.is_dir():
        pytest.skip(f"no public data in {home}: get {ORIGINALS[name]} and set {VARIABLE} to the folder around {name}/")
    folder = home / name
    assert folder.is_dir(), f"{folder} is missing, while {home} is there: get {ORIGINALS[name]}"
    return folder
