"""Install what pyproject.toml says that an extra needs, at the versions of requirements.lock: `install.py [EXTRA]`.

Without an extra: what every process needs. Both files lie beside this one. It exists so that an image has its
dependencies in a layer before the code.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def needs(pyproject: Path, extra: str | None) -> list[str]:
    """The requirements of the extra alone, or those of the project."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    if extra is None:
        return project["dependencies"]
    extras = project["optional-dependencies"]
    if extra not in extras:
        sys.exit(f"pyproject.toml has no extra {extra!r}: each service has one of its name ({', '.join(extras)})")
    return extras[extra]


def main(extra: str | None) -> int:
    """The exit status of pip."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(HERE / "requirements.lock")]
    return subprocess.run([*pip, *needs(HERE / "pyproject.toml", extra)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
