"""Folders of YAML files that operators edit while a service runs: whether one has changed."""

from pathlib import Path

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
