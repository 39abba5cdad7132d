"""What the transfer service decides: whether a request, a manifest and a copy are what they claim to be."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from contracts.jobs import DatasetRef
from contracts.transfers import Manifest, TransferRequest

SHOWN = 3


class State(StrEnum):
    """Where a transfer stands. `clearing`: it has failed and what it had staged is being removed."""

    STAGING = "staging"
    COMPLETED = "completed"
    CLEARING = "clearing"
    FAILED = "failed"


@dataclass(frozen=True)
class Transfer:
    """A request and how far it is."""

    transfer_id: str
    tenant: str
    dataset: DatasetRef
    source: str
    manifest_sha256: str
    state: State
    message: str | None = None

    def answers(self, request: TransferRequest) -> bool:
        """Whether `request` asks for this very transfer."""
        return (self.tenant, self.dataset, self.source, self.manifest_sha256) == (
            request.tenant,
            request.dataset,
            request.source,
            request.manifest_sha256,
        )


@dataclass(frozen=True)
class Dataset:
    """A dataset version: staged when `completed_at` is set, else claimed by the transfer that stages it."""

    tenant: str
    dataset: DatasetRef
    transfer_id: str
    manifest_sha256: str
    objects: int | None = None
    size_bytes: int | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True)
class Totals:
    """What the ledger counts of a transfer."""

    objects: int
    size_bytes: int
    staged: int


@dataclass(frozen=True)
class Stage:
    """Go on: the version is free, or claimed by this transfer."""


@dataclass(frozen=True)
class Wait:
    """Another transfer is staging this version; whether it stands is not known yet."""


@dataclass(frozen=True)
class Done:
    """The version stands already, with this content."""

    dataset: Dataset


@dataclass(frozen=True)
class Reject:
    """The request can become no dataset version; why, in words."""

    message: str


Verdict: TypeAlias = Stage | Wait | Done | Reject


def admit(transfer: Transfer, areas: Collection[str]) -> Reject | None:
    """Refuse a source outside the tenant's own areas (prefixes of URIs)."""
    if any(transfer.source.startswith(area) for area in areas) and "/../" not in f"{transfer.source}/":
        return None
    return Reject(f"source {transfer.source} is not the tenant's: put the files under one of {', '.join(areas)}")


def claim(transfer: Transfer, standing: Dataset | None) -> Verdict:
    """A dataset version never changes: decide what a request for it means while one may stand."""
    if standing is None or standing.transfer_id == transfer.transfer_id:
        return Stage()
    if standing.completed_at is None:
        return Wait()
    if standing.manifest_sha256 == transfer.manifest_sha256:
        return Done(standing)
    name = f"{transfer.dataset.name}:{transfer.dataset.version}"
    return Reject(
        f"dataset {name} stands with manifest {standing.manifest_sha256}, {transfer.manifest_sha256} was requested: "
        "a version never changes, choose a new version name"
    )


def check_manifest(manifest: Manifest, transfer: Transfer, source: Mapping[str, int]) -> Reject | None:
    """Compare a manifest with the request and with what lies at the source (path -> size)."""
    problem = _check_words(manifest, transfer) or _check_objects(manifest, source)
    return None if problem is None else Reject(problem)


def _check_words(manifest: Manifest, transfer: Transfer) -> str | None:
    if manifest.dataset != transfer.dataset:
        asked = f"{transfer.dataset.name}:{transfer.dataset.version}"
        return f"the manifest is of {manifest.dataset.name}:{manifest.dataset.version}, the request is for {asked}"
    paths = {entry.path for entry in manifest.entries}
    if len(paths) != len(manifest.entries):
        return f"the manifest names {len(manifest.entries)} files but only {len(paths)} different paths: build it again"
    size_bytes = sum(entry.size_bytes for entry in manifest.entries)
    if size_bytes != manifest.size_bytes:
        return f"the manifest says {manifest.size_bytes} bytes, its files add up to {size_bytes}: build it again"
    return None


def _check_objects(manifest: Manifest, source: Mapping[str, int]) -> str | None:
    named = {entry.path: entry.size_bytes for entry in manifest.entries}
    missing = sorted(named.keys() - source.keys())
    if missing:
        return f"{len(missing)} of {len(named)} files are missing at the source, {_shown(missing)}: upload them again"
    extra = sorted(source.keys() - named.keys())
    if extra:
        return f"the source has {len(extra)} files that the manifest does not name, {_shown(extra)}: build it again"
    for path, size_bytes in named.items():
        if source[path] != size_bytes:
            return f"{path} has {source[path]} bytes at the source, the manifest says {size_bytes}: upload it again"
    return None


def _shown(paths: list[str]) -> str:
    shown = ", ".join(paths[:SHOWN])
    return f"first {shown}" if len(paths) > SHOWN else shown


def check_totals(totals: Totals, manifest: Manifest) -> Reject | None:
    """Before a version is called complete: the ledger's totals are the manifest's."""
    wanted = (len(manifest.entries), manifest.size_bytes, len(manifest.entries))
    found = (totals.objects, totals.size_bytes, totals.staged)
    if found == wanted:
        return None
    return Reject(
        f"{totals.staged} of {totals.objects} files with {totals.size_bytes} bytes are staged, the manifest names "
        f"{wanted[0]} files with {wanted[1]} bytes: request the transfer again"
    )
