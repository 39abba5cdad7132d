"""Fail when a service needs anything that is not in its image: `imports.py services.scheduler`.

Every module of the service is imported, and every import statement in it is looked up, those inside functions too. An
image holds one service and what its extra brings, so another service, or a package that nobody declared, is not found.
"""

import ast
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path


def modules_of(package: str) -> Iterator[str]:
    """The package and every module in it."""
    yield package
    folders = importlib.import_module(package).__path__
    yield from (found.name for found in pkgutil.walk_packages(folders, f"{package}."))


def named_in(source: str) -> Iterator[tuple[str, str | None]]:
    """Every import of a source text: a module, and what is taken from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, alias.name) for alias in node.names)


def is_there(module: str, name: str | None) -> bool:
    """Whether a module can be imported, and the name in it, be it a module itself."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return name is None or hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}") is not None


def missing_from(package: str) -> Iterator[str]:
    """What the package imports in vain, in words."""
    for module in modules_of(package):
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        for target, name in named_in(Path(spec.origin).read_text(encoding="utf-8")):
            if not is_there(target, name):
                yield f"{module} imports {target if name is None else f'{name} from {target}'}"


def main(package: str) -> int:
    """1 after a line for each import that is not there."""
    sys.path.insert(0, str(Path.cwd()))
    missing = list(missing_from(package))
    for line in missing:
        sys.stderr.write(f"{line}: not in this image; no service imports another, and packages go into its extra\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
