"""An image has one service and what its extra brings; one that needs more is not built."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.compose.engine import ROOT, EngineError, run

CHECK = ROOT / "deploy" / "compose" / "imports.py"
SERVICE = "inventory"
POISON = """
from services.scheduler.core import quota as _quota


def _late() -> object:
    import services.billing.app
    from services import alerting

    return services, alerting, _quota
"""
TOLD = ("imports quota from services.scheduler.core", "imports services.billing.app", "imports alerting from services")


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """What the image of a service has of this repository, as the Dockerfile copies it, and its build's files."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("contracts", "libs", f"services/{SERVICE}", "deploy/compose"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("services/__init__.py", "deploy/Dockerfile", "pyproject.toml", "requirements.lock", ".dockerignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the check of the image's build in a folder like the image's; -S: an editable install finds all."""
    command = [sys.executable, "-P", "-S", str(CHECK), f"services.{SERVICE}"]
    env = {"PYTHONPATH": sysconfig.get_path("purelib")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def poison(folder: Path) -> None:
    with (folder / "services" / SERVICE / "store.py").open("a") as file:
        file.write(POISON)


def test_a_service_alone_finds_all_it_imports(image_folder: Path) -> None:
    done = check(image_folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_service_that_imports_another_is_told(image_folder: Path) -> None:
    poison(image_folder)
    done = check(image_folder)
    assert done.returncode == 1
    assert [words for words in TOLD if f"services.{SERVICE}.store {words}: not in this image" not in done.stderr] == []


@pytest.mark.compose
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("engine")
def test_no_image_is_built_of_a_service_that_imports_another(image_folder: Path) -> None:
    poison(image_folder)
    (image_folder / "examples").mkdir()  # of the command line's stage, which a builder may build on the way
    build = ("docker", "build", "--network=host", "--force-rm", "--file", str(image_folder / "deploy" / "Dockerfile"))
    with pytest.raises(EngineError, match=TOLD[1]):
        run(*build, "--build-arg", f"SERVICE={SERVICE}", str(image_folder))
