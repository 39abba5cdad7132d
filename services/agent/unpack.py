"""Unpack a job's code into its work folder, whatever the archive tries.

In: a tar.gz and bounds. Out: files, folders and symbolic links below the folder, or InputError. Each entry is placed by
hand: the standard extraction gives files away to the archive's owners when run as root, and its safe form is not in
every Python 3.11.
"""

import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from services.agent.errors import InputError

EXECUTABLE, PLAIN = 0o755, 0o644
MAX_HEADER_BYTES = 1024 * 1024
EXTENDED = frozenset(
    (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
)


@dataclass(frozen=True)
class Bound:
    """How much an archive may unpack to."""

    total_bytes: int
    files: int


class _Header(tarfile.TarInfo):
    """An entry's header. An extended one is read into memory whole, so its size is looked at first."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type in EXTENDED and header.size > MAX_HEADER_BYTES:
            msg = f"artefact entry has a header of {header.size} bytes, {MAX_HEADER_BYTES} are allowed: pack it anew"
            raise InputError(msg)
        return header


def unpack(archive: Path, folder: Path, bound: Bound) -> None:
    """Unpack into `folder`, which is emptied first; blocks. Raises InputError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    count = total = 0
    try:
        with tarfile.open(archive, "r|gz", tarinfo=_Header) as tar:
            for member in tar:
                count, total = count + 1, total + member.size
                _bounded(count, total, bound)
                _place(tar, member, folder)
    except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
        msg = f"artefact {archive.name} cannot be unpacked: {error}; pack it again with `farside job submit --dir`"
        raise InputError(msg) from error


def _bounded(count: int, total: int, bound: Bound) -> None:
    if count > bound.files or total > bound.total_bytes:
        words = f"{count} entries and {total} bytes so far, {bound.files} and {bound.total_bytes} are allowed"
        msg = f"artefact unpacks to too much: {words}; put data into a dataset"
        raise InputError(msg)


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    target = folder / member.name
    if not _inside(target, folder):
        _refuse(member, "leads out of the work folder: pack relative names only")
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        target.mkdir(exist_ok=True)
    elif member.issym():
        if not _inside(target.parent / member.linkname, folder):
            _refuse(member, f"points out of the work folder, to {member.linkname!r}: pack what it points to")
        target.symlink_to(member.linkname)
    elif member.isreg():
        _copy(tar, member, target)
    else:
        _refuse(member, "is no file, folder or symbolic link: leave it out")


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, "a regular entry has content"
    mode = EXECUTABLE if member.mode & 0o100 else PLAIN
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file, source:
        shutil.copyfileobj(source, file)


def _inside(path: Path, folder: Path) -> bool:
    """Whether `path` is below `folder` once every link on the way that exists at this moment is followed."""
    return path.resolve().is_relative_to(folder.resolve())


def _refuse(member: tarfile.TarInfo, words: str) -> None:
    msg = f"artefact entry {member.name!r} {words}"
    raise InputError(msg)
