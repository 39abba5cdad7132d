"""The house keeps its shape: short functions and files, and the same anatomy for every service."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts import registry

ROOT = Path(__file__).parents[2]
PARTS = ("contracts", "libs", "services", "deploy", "examples", "tests")
MAX_FUNCTION_LINES = 40
MAX_FILE_LINES = 400
MAX_MAIN_LINES = 40
SERVICES = (*registry.SERVICES, registry.AGENT)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _sources() -> list[Path]:
    return sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py"))


def _functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _lines(function: Function) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_functions_are_short() -> None:
    sizes = {
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}": _lines(function)
        for path in _sources()
        for function in _functions(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES} == {}


def test_files_are_short() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _sources()}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > MAX_FILE_LINES} == {}


@pytest.mark.parametrize("service", SERVICES)
def test_service_has_the_anatomy(service: str) -> None:
    folder = ROOT / "services" / service
    for name in ("README.md", "__init__.py", "__main__.py", "settings.py", "handlers.py", "store.py"):
        assert (folder / name).is_file(), f"services/{service}/{name} is missing"
    assert (folder / "core.py").is_file() or (folder / "core" / "__init__.py").is_file()
    assert len((folder / "__main__.py").read_text(encoding="utf-8").splitlines()) < MAX_MAIN_LINES


@pytest.mark.parametrize("service", SERVICES)
def test_migrations_are_numbered_and_say_when_they_run(service: str) -> None:
    names = sorted(path.name for path in (ROOT / "services" / service / "migrations").glob("*.sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert all(re.fullmatch(r"\d{4}_(pre|post)_[a-z0-9_]+\.sql", name) for name in names), names


def test_the_lock_pins_every_dependency_and_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pinned = {_normal(line.partition("==")[0]) for line in lock.splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {_normal(re.split(r"[\[;<>=!~ ]", name)[0]) for name in wanted} - {"farside"}
    assert names - pinned == set(), "run `just lock` and commit requirements.lock"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
