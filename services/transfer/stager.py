"""The store's side of staging: read the manifest, copy and prove files, publish the manifest last.

Copies stay inside the store. A copy counts only when it reads back with the manifest's digest, so a byte flipped at
the source, a source that changes meanwhile and a damaged copy are all found, each with words of its own.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from contracts.transfers import Manifest, ManifestEntry
from libs.objects import AsyncStore, Created, Digest, Exists, MissingError, RefusedError, dataset_prefix, keys
from services.transfer.core import Reject, Transfer

COPIES_IN_FLIGHT = 4
COPY_TRIES = 3


@dataclass(frozen=True)
class Read:
    """The manifest as it was read, and its bytes as they were sent."""

    manifest: Manifest
    content: bytes


class Stager:
    """Raises ObjectsError; UnavailableError among them means that the same work may succeed later."""

    def __init__(self, store: AsyncStore) -> None:
        """Work in the store's bucket."""
        self._store = store

    def areas(self, tenant: str) -> tuple[str, str]:
        """Prefixes of URIs from which a tenant may stage."""
        return self._store.uri(f"uploads/{tenant}/"), self._store.uri(f"datasets/{tenant}/")

    def uri(self, key: str) -> str:
        """The URI of a key in the bucket."""
        return self._store.uri(key)

    async def admit(self, wait_s: float) -> None:
        """Wait for a store that stores; see `libs.objects.admission`."""
        await self._store.admit("probes/transfer", wait_s)

    async def read_manifest(self, transfer: Transfer) -> Read | Reject:
        """The manifest at the source, if it is the one that was requested."""
        key = keys.manifest_key(self._source(transfer))
        try:
            content = await self._store.get(key)
        except MissingError:
            return Reject(f"there is no {self._store.uri(key)}: upload the files with their manifest first")
        found = hashlib.sha256(content).hexdigest()
        if found != transfer.manifest_sha256:
            return Reject(f"{self._store.uri(key)} has SHA-256 {found}, {transfer.manifest_sha256} was requested")
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return Reject(f"{self._store.uri(key)} is no manifest: {first['loc']}: {first['msg']}")
        return _keepable(transfer, manifest) or Read(manifest, content)

    async def check_free(self, transfer: Transfer, content: bytes) -> Reject | None:
        """Refuse to touch a version that stands in the store with another manifest, whoever wrote it."""
        standing = await self._published(transfer)
        return None if standing in {None, content} else self._taken(transfer, standing or b"")

    async def source_sizes(self, transfer: Transfer) -> dict[str, int]:
        """Path -> size of every file at the source."""
        return await self._sizes(self._source(transfer))

    async def staged_sizes(self, transfer: Transfer) -> dict[str, int]:
        """Path -> size of every file under the dataset version's prefix."""
        return await self._sizes(prefix_of(transfer))

    async def stage(self, transfer: Transfer, entries: Sequence[ManifestEntry]) -> Reject | None:
        """Copy and prove some files, COPIES_IN_FLIGHT at a time."""
        slots = asyncio.Semaphore(COPIES_IN_FLIGHT)

        async def one(entry: ManifestEntry) -> Reject | None:
            async with slots:
                return await self._stage_one(transfer, entry)

        return next((found for found in await asyncio.gather(*map(one, entries)) if found is not None), None)

    async def publish(self, transfer: Transfer, content: bytes) -> Reject | None:
        """Write the manifest, last of all: from now on the version is there."""
        answer = await self._store.put_if_absent(keys.manifest_key(prefix_of(transfer)), content)
        match answer:
            case Created():
                return None
            case Exists(standing):
                return None if standing == content else self._taken(transfer, standing)

    async def remove_staged(self, transfer: Transfer, paths: Sequence[str]) -> None:
        """Remove files of a version that never came to be."""
        await self._store.delete([keys.file_key(prefix_of(transfer), path) for path in paths])

    async def clear(self, transfer: Transfer) -> None:
        """Remove all that a failed transfer has staged, unless a version stands there."""
        if await self._published(transfer) is not None:
            return
        await self.remove_staged(transfer, list(await self.staged_sizes(transfer)))

    async def remove_source(self, transfer: Transfer) -> None:
        """Remove an upload that was staged long ago; the manifest first."""
        prefix = self._source(transfer)
        await self._store.delete([keys.manifest_key(prefix)])
        await self._store.delete([item.key for item in await self._store.list(prefix)])

    async def _stage_one(self, transfer: Transfer, entry: ManifestEntry) -> Reject | None:
        source = keys.file_key(self._source(transfer), entry.path)
        target = keys.file_key(prefix_of(transfer), entry.path)
        wanted = Digest(entry.sha256, entry.size_bytes)
        found = wanted
        for _ in range(COPY_TRIES):
            try:
                await self._store.copy(source, target, entry.size_bytes)
                found = await self._store.digest(target)
                if found == wanted:
                    return None
                at_source = await self._store.digest(source)
            except MissingError:
                return Reject(f"{entry.path} is not at the source any more: upload it again")
            if at_source != wanted:
                return Reject(_differs(entry, "at the source", at_source))
        return Reject(_differs(entry, f"in the store after {COPY_TRIES} copies", found))

    async def _sizes(self, prefix: str) -> dict[str, int]:
        files = keys.file_key(prefix, "")
        return {item.key.removeprefix(files): item.size_bytes for item in await self._store.list(files)}

    async def _published(self, transfer: Transfer) -> bytes | None:
        try:
            return await self._store.get(keys.manifest_key(prefix_of(transfer)))
        except MissingError:
            return None

    def _taken(self, transfer: Transfer, standing: bytes) -> Reject:
        uri, found = self._store.uri(keys.manifest_key(prefix_of(transfer))), hashlib.sha256(standing).hexdigest()
        return Reject(f"{uri} is there with SHA-256 {found}: a version never changes, choose a new version name")

    def _source(self, transfer: Transfer) -> str:
        return self._store.key(transfer.source.rstrip("/") + "/")


def prefix_of(transfer: Transfer) -> str:
    """Where the dataset version lies."""
    return dataset_prefix(transfer.tenant, transfer.dataset.name, transfer.dataset.version)


def _keepable(transfer: Transfer, manifest: Manifest) -> Reject | None:
    """Refuse a path that the store would keep under another name."""
    for entry in manifest.entries:
        try:
            keys.check_key(keys.file_key(prefix_of(transfer), entry.path))
        except RefusedError as error:
            return Reject(f"path {entry.path!r} of the manifest cannot be kept: {error}")
    return None


def _differs(entry: ManifestEntry, where: str, found: Digest) -> str:
    return (
        f"{entry.path} has SHA-256 {found.sha256} and {found.size_bytes} bytes {where}, the manifest says "
        f"{entry.sha256} and {entry.size_bytes} bytes: upload it again"
    )
