"""Install what pyproject.toml says that an extra needs, at the versions of requirements.lock: `install.py [EXTRA]`.

Without an extra: what every process needs, and Farside's own name and version. Both files lie beside this one. It
exists so that an image has its dependencies in a layer before the code.
"""

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def needs(project: dict[str, Any], extra: str | None) -> list[str]:
    """The requirements of the extra alone, or those of the project."""
    if extra is None:
        return project["dependencies"]
    extras = project["optional-dependencies"]
    if extra not in extras:
        sys.exit(f"pyproject.toml has no extra {extra!r}: each service has one of its name ({', '.join(extras)})")
    return extras[extra]


def describe(project: dict[str, Any], packages: Path) -> None:
    """Leave the metadata of a package, so that the code that is copied knows its version."""
    folder = packages / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")


def main(extra: str | None) -> int:
    """The exit status of pip."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if extra is None:
        describe(project, Path(sysconfig.get_path("purelib")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(HERE / "requirements.lock")]
    return subprocess.run([*pip, *needs(project, extra)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
