"""Folders of YAML files that operators edit while a service runs: whether one has changed, and what is wrong in one."""

from pathlib import Path

from pydantic import ValidationError

Signature = tuple[tuple[str, int, int], ...]


def signature(folder: Path) -> Signature:
    """Name, time of change (ns) and size (bytes) of each file; equal while nothing has changed."""
    found: list[tuple[str, int, int]] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            status = path.stat()
        except OSError:  # it went away between the look at the folder and this one
            continue
        found.append((path.name, status.st_mtime_ns, status.st_size))
    return tuple(found)


def explain(path: Path, error: ValidationError) -> str:
    """What is wrong in a file: each field with its value."""
    lines: list[str] = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "the file"
        value = "" if problem["type"] == "missing" else f" is {problem['input']!r}"
        lines.append(f"field {where}{value}: {problem['msg']}")
    return f"{path}: {'; '.join(lines)}"
