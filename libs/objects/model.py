"""What store calls take and give."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

CHUNK_BYTES = 1024 * 1024


class S3Settings(Protocol):
    """What a service's settings say of its store."""

    @property
    def s3_endpoint(self) -> str:
        """URL of the store."""
        ...

    @property
    def s3_access_key(self) -> str:
        """Who asks."""
        ...

    @property
    def s3_secret_key(self) -> SecretStr:
        """The proof of it."""
        ...

    @property
    def s3_bucket(self) -> str:
        """The one bucket that is used."""
        ...


@dataclass(frozen=True)
class StoreConfig:
    """Where the bucket is and who asks."""

    endpoint: str
    access_key: str
    secret_key: SecretStr
    bucket: str = "farside"
    region: str = "us-east-1"


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it."""

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True)
class Head(Listed):
    """What a store says of one object. `etag` names this version of it and is no digest."""

    etag: str


@dataclass(frozen=True)
class Created:
    """The object was not there and now is, as given."""


@dataclass(frozen=True)
class Exists:
    """The object was there before, with this content; it may be one's own, stored by an earlier try."""

    content: bytes


@dataclass(frozen=True)
class Version:
    """The content of an object, and the `etag` that names this version of it."""

    content: bytes
    etag: str


@dataclass(frozen=True)
class Digest:
    """SHA-256 (hex) and size of an object or a file."""

    sha256: str
    size_bytes: int


def digest_of(data: bytes | Path) -> Digest:
    """SHA-256 and size of bytes or of a file, streamed."""
    if isinstance(data, bytes):
        return Digest(hashlib.sha256(data).hexdigest(), len(data))
    hasher, size_bytes = hashlib.sha256(), 0
    with data.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return Digest(hasher.hexdigest(), size_bytes)
