"""Pack a directory into an artefact: the same files give the same bytes, so the same code is stored once."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from libs.cli.errors import FileError
from libs.cli.words import size

MAX_FILES = 20_000
MAX_SOURCE_BYTES = 512 * 1024 * 1024
LEFT_OUT = frozenset(
    {".git", ".hg", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".DS_Store"}
)
EXECUTABLE, PLAIN = 0o755, 0o644
COMPRESSION = 6


@dataclass(frozen=True)
class Packed:
    """A tar.gz in memory with its digest."""

    data: bytes
    sha256: str
    files: int


def pack(folder: Path) -> Packed:
    """Pack `folder`; caches and version control are left out. Raises FileError for what a job must not carry."""
    if not folder.is_dir():
        msg = f"--dir {folder} is no directory: name the folder that holds the job's code"
        raise FileError(msg)
    buffer = io.BytesIO()
    count = total = 0
    # No file name and no time in the gzip header, no owner and no time in the tar: only content counts.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=COMPRESSION) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in _walk(folder):
            count, total = count + 1, total + _add(archive, folder, name, path)
            _bound(folder, count, total)
    if not count:
        msg = f"--dir {folder} holds no file: name the folder that holds the job's code"
        raise FileError(msg)
    data = buffer.getvalue()
    return Packed(data, hashlib.sha256(data).hexdigest(), count)


def _walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Relative names with paths, in an order that depends on the names alone."""
    for root, directories, files in os.walk(folder):
        directories[:] = sorted(name for name in directories if name not in LEFT_OUT)
        links = [name for name in directories if (Path(root) / name).is_symlink()]
        for name in sorted([*files, *links]):
            if name not in LEFT_OUT and not name.endswith(".pyc"):
                path = Path(root) / name
                yield path.relative_to(folder).as_posix(), path


def _add(archive: tarfile.TarFile, folder: Path, name: str, path: Path) -> int:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        _check_link(folder, path)
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115 - the text of the link, not a path
        archive.addfile(info)
        return 0
    if not path.is_file():
        msg = f"{path} is neither a file nor a link: take it out of --dir {folder}"
        raise FileError(msg)
    info.mode = EXECUTABLE if os.access(path, os.X_OK) else PLAIN
    info.size = path.stat().st_size
    with path.open("rb") as source:
        archive.addfile(info, source)
    return info.size


def _check_link(folder: Path, path: Path) -> None:
    if Path(os.readlink(path)).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):  # noqa: PTH115
        msg = f"{path} links to {path.resolve()}, outside --dir {folder}: copy the file instead"
        raise FileError(msg)


def _bound(folder: Path, count: int, total: int) -> None:
    if count > MAX_FILES:
        msg = f"--dir {folder} holds more than {MAX_FILES} files: pack code, and put data as a dataset"
        raise FileError(msg)
    if total > MAX_SOURCE_BYTES:
        limit = size(MAX_SOURCE_BYTES)
        msg = f"--dir {folder} holds more than {limit}: pack code, and put data with `farside dataset put`"
        raise FileError(msg)
