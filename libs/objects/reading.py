"""Reading objects in chunks: a cut connection resumes where it broke, on the same version of the object only."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from libs.objects import keys
from libs.objects.errors import ChangedError, UnavailableError
from libs.objects.faults import PreconditionError, told
from libs.objects.model import CHUNK_BYTES
from libs.objects.wire import S3

RESUMES_LIMIT = 8
RESUME_WAIT_S = 0.25


@dataclass(frozen=True)
class Stream:
    """An object opened for reading."""

    uri: str
    size_bytes: int
    etag: str
    body: Any


def open_object(s3: S3, bucket: str, key: str) -> Stream:
    """Ask for an object; no byte of it has been read yet. Raises MissingError."""
    uri = keys.uri(bucket, keys.check_key(key))
    with told(f"get {uri}"):
        reply = s3.get_object(Bucket=bucket, Key=key)
    return Stream(uri, int(reply["ContentLength"]), str(reply["ETag"]), reply["Body"])


def chunks(s3: S3, bucket: str, key: str, stream: Stream) -> Iterator[bytes]:
    """All bytes of the object, CHUNK_BYTES at a time. Raises ChangedError, UnavailableError."""
    body, done_bytes, resumes = stream.body, 0, 0
    while done_bytes < stream.size_bytes:
        try:
            chunk = _read(body, stream, done_bytes)
        except UnavailableError:
            resumes += 1
            if resumes > RESUMES_LIMIT:
                raise
            time.sleep(RESUME_WAIT_S * resumes)
            body = _reopen(s3, bucket, key, stream, done_bytes)
            continue
        done_bytes += len(chunk)
        yield chunk
    body.close()


def _read(body: Any, stream: Stream, done_bytes: int) -> bytes:
    with told(f"get {stream.uri}"):
        chunk: bytes = body.read(CHUNK_BYTES)
    if not chunk:
        msg = f"get {stream.uri}: {done_bytes} of {stream.size_bytes} bytes came: try again"
        raise UnavailableError(msg)
    return chunk


def _reopen(s3: S3, bucket: str, key: str, stream: Stream, offset: int) -> Any:
    try:
        with told(f"get {stream.uri}"):
            reply = s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={offset}-", IfMatch=stream.etag)
    except PreconditionError as error:
        msg = f"get {stream.uri}: the object changed while it was read, at byte {offset}: read it again"
        raise ChangedError(msg) from error
    return reply["Body"]
