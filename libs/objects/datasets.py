"""Datasets as folders: build a manifest, send a folder for staging, fetch a staged version.

In: a folder or a manifest. Out: objects under an upload prefix, or a folder whose every file has the manifest's digest.
Paths in a manifest are written by `escape_path`, so any file name survives, NFC and NFD twins too. Symbolic links are
refused: they may loop or lead outside.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from contracts.jobs import DatasetRef
from contracts.transfers import Manifest, ManifestEntry
from libs.objects import keys
from libs.objects.errors import RefusedError
from libs.objects.model import digest_of
from libs.objects.store import Store

FILES_LIMIT = 1_000_000


def build_manifest(folder: Path, dataset: DatasetRef) -> Manifest:
    """Digest every file under `folder`. Raises RefusedError for a link, an odd file, or an empty folder."""
    entries: list[ManifestEntry] = []
    for path in _files(folder):
        digest = digest_of(path)
        relative = keys.escape_path(os.fsencode(path.relative_to(folder)))
        entries.append(ManifestEntry(path=relative, sha256=digest.sha256, size_bytes=digest.size_bytes))
    if not entries:
        msg = f"folder {folder} has no files: a dataset version has at least one"
        raise RefusedError(msg)
    return Manifest(dataset=dataset, entries=entries, size_bytes=sum(entry.size_bytes for entry in entries))


def manifest_bytes(manifest: Manifest) -> bytes:
    """The content of MANIFEST.json; its SHA-256 names the dataset version's content."""
    return manifest.model_dump_json().encode()


def manifest_sha256(manifest: Manifest) -> str:
    """SHA-256 of `manifest_bytes`."""
    return hashlib.sha256(manifest_bytes(manifest)).hexdigest()


def upload_folder(store: Store, folder: Path, manifest: Manifest, prefix: str) -> str:
    """Send the files and then MANIFEST.json under an upload prefix; return the prefix's URI.

    Raises DamagedError when a file changed after the manifest was built.
    """
    for entry in manifest.entries:
        source = local_path(folder, entry.path)
        store.put(keys.file_key(prefix, entry.path), source, entry.sha256, verify=False)
    store.put(keys.manifest_key(prefix), manifest_bytes(manifest))
    return store.uri(prefix)


def fetch_folder(store: Store, manifest: Manifest, prefix: str, folder: Path) -> None:
    """Fetch every file of a staged version into `folder`, verified; files already there and right are kept.

    Raises MissingError, DamagedError.
    """
    for entry in manifest.entries:
        target = local_path(folder, entry.path)
        if target.is_file() and digest_of(target).sha256 == entry.sha256:
            continue
        store.get_to(keys.file_key(prefix, entry.path), target, entry.sha256)


def local_path(folder: Path, path: str) -> Path:
    """Where a manifest's path lies under `folder`. Raises RefusedError for one that would leave it."""
    relative = Path(os.fsdecode(keys.unescape_path(path)))
    if relative.is_absolute() or ".." in relative.parts:
        msg = f"path {path!r} leads out of the dataset: build the manifest again from a folder"
        raise RefusedError(msg)
    return folder / relative


def _files(folder: Path) -> Iterator[Path]:
    """Regular files under `folder`, in order of their names' bytes."""
    found = 0
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders.sort(key=os.fsencode)
        for name in [*folders, *sorted(files, key=os.fsencode)]:
            path = Path(parent, name)
            if path.is_symlink():
                msg = f"{path} is a symbolic link: a dataset holds files, replace it by what it points to"
                raise RefusedError(msg)
        for name in sorted(files, key=os.fsencode):
            path = Path(parent, name)
            if not path.is_file():
                msg = f"{path} is no regular file: a dataset holds files only, move it elsewhere"
                raise RefusedError(msg)
            found += 1
            if found > FILES_LIMIT:
                msg = f"folder {folder} has more than {FILES_LIMIT} files: pack them, or split the dataset"
                raise RefusedError(msg)
            yield path


def _raise(error: OSError) -> None:
    raise error
