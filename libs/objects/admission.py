"""Is this store one to build on? A port that answers is not a store that stores.

`wait_ready` makes the bucket and waits until a write reads back unchanged. `admit` asks more: that a conditional write
is refused when the object exists, without which no commit marker is safe.
"""

import time

from libs.objects import keys
from libs.objects.errors import DamagedError, MissingError, RefusedError, UnavailableError
from libs.objects.faults import BucketExistsError, PreconditionError, told
from libs.objects.wire import S3

READY_POLL_S = 0.25


def wait_ready(s3: S3, bucket: str, probe_key: str, timeout_s: float) -> None:
    """Make the bucket and wait for a write. `s3` retries nothing by itself, so that the deadline holds.

    Raises UnavailableError after `timeout_s`; DamagedError or RefusedError at once for a store that changes bytes or
    ignores conditions.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _make_bucket(s3, bucket)
            admit(s3, bucket, probe_key)
        except UnavailableError as error:
            if time.monotonic() >= deadline:
                msg = f"bucket {bucket} took no write within {timeout_s:g} s: {error}"
                raise UnavailableError(msg) from error
            time.sleep(READY_POLL_S)
        else:
            return


def admit(s3: S3, bucket: str, probe_key: str) -> None:
    """Write, read back, try to overwrite under a condition, remove."""
    body = f"probe {probe_key}".encode()
    uri = keys.uri(bucket, keys.check_key(probe_key))
    with told(f"put {uri}"):
        s3.put_object(Bucket=bucket, Key=probe_key, Body=body)
    with told(f"get {uri}"):
        found = s3.get_object(Bucket=bucket, Key=probe_key)["Body"].read()
    if found != body:
        msg = f"{uri} reads {found[:80]!r}, {body[:80]!r} was written: this store changes objects, use another"
        raise DamagedError(msg)
    if _overwrites(s3, bucket, probe_key):
        msg = f"{uri} was overwritten despite If-None-Match: this store ignores conditions, use one that honours them"
        raise RefusedError(msg)
    with told(f"delete {uri}"):
        s3.delete_object(Bucket=bucket, Key=probe_key)


def _overwrites(s3: S3, bucket: str, key: str) -> bool:
    try:
        with told(f"put {keys.uri(bucket, key)} if absent"):
            s3.put_object(Bucket=bucket, Key=key, Body=b"overwritten", IfNoneMatch="*")
    except PreconditionError:
        return False
    return True


def _make_bucket(s3: S3, bucket: str) -> None:
    try:
        with told(f"head bucket {bucket}"):
            s3.head_bucket(Bucket=bucket)
    except MissingError:
        try:
            with told(f"create bucket {bucket}"):
                s3.create_bucket(Bucket=bucket)
        except BucketExistsError:
            return
