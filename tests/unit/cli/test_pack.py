"""Packing: the same files give the same artefact wherever and whenever they are packed."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from libs.cli import pack as packing
from libs.cli.errors import FileError
from libs.cli.pack import pack


def write(folder: Path) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "src" / "a.py").write_text("x = 1\n")
    (folder / "link.py").symlink_to("src/a.py")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_bytes(b"cache")
    return folder


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        return {member.name: member for member in archive}


def test_same_files_same_bytes(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one"), write(tmp_path / "two")
    os.utime(second / "src" / "a.py", (1, 1))
    (second / "src" / "a.py").chmod(0o600)
    assert pack(first) == pack(second)


def test_other_content_other_digest(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    before = pack(folder).sha256
    (folder / "src" / "a.py").write_text("x = 2\n")
    assert pack(folder).sha256 != before


def test_caches_stay_behind_modes_and_links_are_kept(tmp_path: Path) -> None:
    found = members(pack(write(tmp_path / "one")).data)
    assert sorted(found) == ["link.py", "run.sh", "src/a.py"]
    assert (found["run.sh"].mode, found["src/a.py"].mode) == (0o755, 0o644)
    assert found["link.py"].issym()
    assert found["link.py"].linkname == "src/a.py"


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(FileError, match=r"links to .* outside --dir"):
        pack(folder)


def test_an_odd_file_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    os.mkfifo(folder / "pipe")
    with pytest.raises(FileError, match="pipe is neither a file nor a link"):
        pack(folder)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no file"):
        pack(tmp_path)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "one")
    monkeypatch.setattr(packing, "MAX_FILES", 2)
    with pytest.raises(FileError, match="more than 2 files"):
        pack(folder)
    monkeypatch.setattr(packing, "MAX_FILES", 20)
    monkeypatch.setattr(packing, "MAX_SOURCE_BYTES", 3)
    with pytest.raises(FileError, match="more than 3 B"):
        pack(folder)
