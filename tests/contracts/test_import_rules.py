"""The import rules of pyproject.toml bite: a copy of the house with one forbidden import each is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("contracts", "libs", "services", "deploy")

FORBIDDEN = {
    "a service imports another": (
        "services/scheduler/zz.py",
        "import services.inventory",
        "no service imports another",
    ),
    "a library imports a service": ("libs/kit/zz.py", "import services.inventory", "arrows point one way"),
    "contracts import a library": ("contracts/zz.py", "import libs.kit", "arrows point one way"),
    "a service imports deploy": ("services/agent/zz.py", "import deploy", "arrows point one way"),
    "the SDK imports the bus": ("libs/sdk/zz.py", "import libs.bus", "the SDK is taken alone"),
    "the audit imports the bus": ("libs/audit/zz.py", "import libs.bus", "the audit proves by itself"),
    "core opens a database": ("services/scheduler/core/zz.py", "import sqlite3", "core decides and does no I/O"),
    "core talks to the bus": ("services/inventory/core/zz.py", "import libs.bus", "core decides and does no I/O"),
    "core starts a loop": ("services/scheduler/core/zz.py", "import asyncio", "core decides and does no I/O"),
    "contracts open a database": ("contracts/zz.py", "import asyncpg", "contracts may be taken alone"),
}


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the rules."""
    root = tmp_path_factory.mktemp("house")
    for part in PARTS:
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "*.json"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def test_the_house_as_it_is_keeps_the_rules(house: Path) -> None:
    done = _lint(house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_import_is_refused(house: Path, name: str) -> None:
    path, statement, rule = FORBIDDEN[name]
    intruder = house / path
    intruder.write_text(f'"""Intruder."""\n\n{statement}\n', encoding="utf-8")
    try:
        done = _lint(house)
    finally:
        intruder.unlink()
    assert done.returncode == 1
    assert any(line.startswith(rule) and line.endswith("BROKEN") for line in done.stdout.splitlines()), done.stdout
