"""Print what pyproject.toml says that an extra needs, one requirement a line: `needs.py pyproject.toml [EXTRA]`.

Without an extra: what every process needs. It exists so that an image has its dependencies in a layer before the code.
"""

import sys
import tomllib
from pathlib import Path


def needs(pyproject: Path, extra: str | None) -> list[str]:
    """The requirements of the extra alone, or those of the project."""
    project = tomllib.loads(pyproject.read_text())["project"]
    if extra is None:
        return project["dependencies"]
    extras = project["optional-dependencies"]
    if extra not in extras:
        sys.exit(
            f"{pyproject} has no extra {extra!r}: each service has one of its name (there are {', '.join(extras)})"
        )
    return extras[extra]


if __name__ == "__main__":
    sys.stdout.write("\n".join(needs(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)) + "\n")  # noqa: PLR2004
