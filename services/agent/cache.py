"""The node's cache of what jobs read: verified once, named by content, bounded.

In: a name that is a digest, a size and a way to fill a folder. Out: the folder, which appears whole or not at all.
Entries in use are pinned; beyond the bound the one unused for longest goes first.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from services.agent.errors import InputError

PART_PREFIX = ".part-"


class Cache:
    """Folders under `root`, `limit_bytes` together."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = root
        self._limit_bytes = limit_bytes
        self._pins: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    def clear_parts(self) -> None:
        """Remove what an earlier agent left half filled; for the one agent that runs."""
        for part in self._root.glob(f"{PART_PREFIX}*"):
            shutil.rmtree(part, ignore_errors=True)

    def pin(self, name: str) -> None:
        """Keep an entry while somebody uses it."""
        self._pins[name] += 1

    def unpin(self, name: str) -> None:
        """End one use of an entry."""
        self._pins[name] -= 1
        if self._pins[name] <= 0:
            del self._pins[name]

    def name_of(self, path: str) -> str | None:
        """The entry that holds `path`, if one does."""
        try:
            return Path(path).relative_to(self._root).parts[0]
        except (ValueError, IndexError):
            return None

    async def get(self, name: str, size_bytes: int, fill: Callable[[Path], Awaitable[None]]) -> Path:
        """The entry, filled if it is not there. The caller has pinned it. Raises InputError when it can never fit."""
        target = self._root / name
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            if not target.is_dir():
                await asyncio.to_thread(self._make_room, size_bytes, name)
                part = self._root / f"{PART_PREFIX}{name}"
                await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
                part.mkdir(mode=0o700)
                await fill(part)
                await asyncio.to_thread(_seal, part)
                part.rename(target)
            os.utime(target)
        return target

    def _make_room(self, size_bytes: int, name: str) -> None:
        if size_bytes > self._limit_bytes:
            msg = (
                f"{name} has {size_bytes} bytes, the node's cache holds {self._limit_bytes}: raise FARSIDE_CACHE_BYTES"
            )
            raise InputError(msg)
        entries = sorted(self._entries(), key=lambda entry: entry.stat().st_mtime)
        sizes = {entry: _size(entry) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total + size_bytes <= self._limit_bytes:
                return
            if entry.name not in self._pins:
                _remove(entry)
                total -= sizes[entry]

    def _entries(self) -> list[Path]:
        return [path for path in self._root.iterdir() if path.is_dir() and not path.name.startswith(PART_PREFIX)]


def _size(folder: Path) -> int:
    return sum(Path(parent, file).lstat().st_size for parent, _, files in os.walk(folder) for file in files)


def _seal(folder: Path) -> None:
    """Make files read-only: a job that writes into its dataset fails instead of changing everybody's."""
    for parent, _, files in os.walk(folder):
        for file in files:
            Path(parent, file).chmod(0o444)


def _remove(folder: Path) -> None:
    gone = folder.with_name(f"{PART_PREFIX}gone-{folder.name}")
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
