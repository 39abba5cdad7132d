"""Folders as datasets: manifest, upload, fetch."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from contracts.jobs import DatasetRef
from contracts.transfers import Manifest, ManifestEntry
from libs.objects import DamagedError, RefusedError, Store, StoreConfig, datasets, keys
from tests.servers import SeaweedServer

REF = DatasetRef(name="digits", version="v1")


@pytest.fixture(scope="module")
def store(s3: SeaweedServer) -> Iterator[Store]:
    made = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key), "datasets-test"))
    made.wait_ready("probes/datasets", 60)
    yield made
    made.close()


def write(folder: Path, files: dict[bytes, bytes]) -> Path:
    for name, content in files.items():
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def contents(folder: Path) -> dict[bytes, bytes]:
    return {os.fsencode(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


FILES = {
    b"plain.txt": b"one",
    b"deep/er/two.bin": b"\0\1",
    b"empty": b"",
    "é".encode(): b"composed",
    "e\u0301".encode(): b"decomposed",
    b"not-utf8-\xff": b"bytes",
    b"back\\slash 100%+&": b"odd",
}


def test_tc8_tc10_a_folder_comes_back_byte_for_byte(store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "source", FILES)
    manifest = datasets.build_manifest(folder, REF)
    assert len(manifest.entries) == len(FILES)
    assert manifest.size_bytes == sum(len(content) for content in FILES.values())
    datasets.upload_folder(store, folder, manifest, "uploads/acme/one/")
    datasets.fetch_folder(store, manifest, "uploads/acme/one/", tmp_path / "back")
    assert contents(tmp_path / "back") == FILES
    assert Manifest.model_validate_json(store.get("uploads/acme/one/MANIFEST.json")) == manifest


def test_the_same_folder_has_the_same_manifest(tmp_path: Path) -> None:
    one = datasets.build_manifest(write(tmp_path / "one", FILES), REF)
    two = datasets.build_manifest(write(tmp_path / "two", dict(reversed(FILES.items()))), REF)
    assert datasets.manifest_sha256(one) == datasets.manifest_sha256(two)


def test_tc11_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "source", {b"a": b"1"})
    (folder / "loop").symlink_to(folder)
    with pytest.raises(RefusedError, match="symbolic link"):
        datasets.build_manifest(folder, REF)


def test_tc12_a_file_that_changed_after_its_digest_is_told(store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "source", {b"a": b"before"})
    manifest = datasets.build_manifest(folder, REF)
    (folder / "a").write_bytes(b"after!")
    with pytest.raises(DamagedError, match="was promised"):
        datasets.upload_folder(store, folder, manifest, "uploads/acme/changed/")


def test_an_empty_folder_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no files"):
        datasets.build_manifest(tmp_path, REF)


def test_a_path_that_leads_out_of_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    for path in ("../escape", "a/../../escape", "%2Fetc/passwd"):
        entry = ManifestEntry(path=path, sha256="0" * 64, size_bytes=1)
        manifest = Manifest(dataset=REF, entries=[entry], size_bytes=1)
        with pytest.raises(RefusedError):
            datasets.fetch_folder(store, manifest, "uploads/acme/x/", tmp_path / "back")


def test_a_file_that_is_there_and_right_is_not_fetched_again(store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "source", {b"a": b"1", b"b": b"2"})
    manifest = datasets.build_manifest(folder, REF)
    datasets.upload_folder(store, folder, manifest, "uploads/acme/again/")
    back = write(tmp_path / "back", {b"a": b"1", b"b": b"torn"})
    store.delete(["uploads/acme/again/files/a"])
    datasets.fetch_folder(store, manifest, "uploads/acme/again/", back)
    assert contents(back) == {b"a": b"1", b"b": b"2"}


@given(st.binary(max_size=60))
def test_escape_path_has_an_inverse_and_keys_without_traps(name: bytes) -> None:
    escaped = keys.escape_path(name)
    assert keys.unescape_path(escaped) == name
    assert escaped.encode().decode() == escaped
    assert not {"\\", "\0"} & set(escaped)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_two_names_are_never_one(one: bytes, two: bytes) -> None:
    assert (keys.escape_path(one) == keys.escape_path(two)) == (one == two)


@given(st.text(max_size=30))
def test_unescape_reads_what_escape_wrote_or_refuses(text: str) -> None:
    try:
        raw = keys.unescape_path(text)
    except (RefusedError, UnicodeEncodeError):
        return
    assert keys.unescape_path(keys.escape_path(raw)) == raw
