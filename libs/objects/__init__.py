"""Object storage for every room: verified writes, conditional writes, complete listings, own digests.

In: keys, bytes and files. Out: the same on an S3 store, or one of the errors in `libs.objects.errors`. It exists so
that no caller meets the ways in which stores and SDKs differ: ETags that are not digests, retries that look like
conflicts, listings cut short, names that a store silently changes.
"""

from libs.objects.aio import AsyncStore
from libs.objects.errors import (
    ChangedError,
    DamagedError,
    MissingError,
    ObjectsError,
    RefusedError,
    UnavailableError,
)
from libs.objects.keys import (
    artefact_area,
    artefact_key,
    attempt_prefix,
    checkpoint_prefix,
    dataset_prefix,
    escape_path,
    log_key,
    marker_key,
    shard_key,
    unescape_path,
    upload_prefix,
    usage_extract_key,
)
from libs.objects.model import Created, Digest, Exists, Head, Listed, S3Settings, StoreConfig, digest_of
from libs.objects.store import Store

__all__ = [
    "AsyncStore",
    "ChangedError",
    "Created",
    "DamagedError",
    "Digest",
    "Exists",
    "Head",
    "Listed",
    "MissingError",
    "ObjectsError",
    "RefusedError",
    "S3Settings",
    "Store",
    "StoreConfig",
    "UnavailableError",
    "artefact_area",
    "artefact_key",
    "attempt_prefix",
    "checkpoint_prefix",
    "dataset_prefix",
    "digest_of",
    "escape_path",
    "log_key",
    "marker_key",
    "shard_key",
    "unescape_path",
    "upload_prefix",
    "usage_extract_key",
]
