"""Transfers: staging a dataset version into object storage under a manifest."""

from typing import Annotated

from pydantic import Field, StringConstraints

from contracts.base import Count, Model, Name, Sha256, Text, Uri, Utc, Uuid
from contracts.jobs import DatasetRef

ObjectKey = Annotated[str, StringConstraints(pattern=r"^[^/\x00][^\x00]*$", max_length=900)]


class ManifestEntry(Model):
    """One file of a dataset version; `path` is relative to the dataset's root."""

    path: ObjectKey
    sha256: Sha256
    size_bytes: Count


class Manifest(Model):
    """The content of MANIFEST.json: what makes up one version of a dataset."""

    dataset: DatasetRef
    entries: Annotated[list[ManifestEntry], Field(min_length=1)]
    size_bytes: Count


class TransferRequest(Model):
    """Stage the files under `source` (an s3 prefix holding a MANIFEST.json) as a version of a dataset."""

    transfer_id: Uuid
    tenant: Name
    dataset: DatasetRef
    source: Uri
    manifest_sha256: Sha256


class TransferCompleted(Model):
    """The dataset version stands verified under `prefix`; readers may use it."""

    transfer_id: Uuid
    tenant: Name
    dataset: DatasetRef
    prefix: Uri
    manifest: Uri
    manifest_sha256: Sha256
    objects: Count
    size_bytes: Count
    completed_at: Utc


class TransferFailed(Model):
    """The request became no dataset version."""

    transfer_id: Uuid
    tenant: Name
    dataset: DatasetRef
    message: Text
    failed_at: Utc
