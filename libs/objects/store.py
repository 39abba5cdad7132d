"""`Store`: one bucket of an S3 store, blocking calls.

Bytes go in with their SHA-256 and count as written only when they read back the same (`verify=False` leaves that out
where a later reader checks anyway). Listings are complete or an error. ETags are opaque: they name a version of an
object and are never compared with a digest. Every retry is bounded; what is left is an ObjectsError.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from libs.objects import admission, keys, multipart, reading
from libs.objects.errors import DamagedError, MissingError, RefusedError, UnavailableError
from libs.objects.faults import ConflictError, PreconditionError, told
from libs.objects.model import Created, Digest, Exists, Head, Listed, S3Settings, StoreConfig, Version, digest_of
from libs.objects.wire import S3, connect

LARGE_BYTES = 64 * 1024 * 1024
GET_BYTES_LIMIT = 64 * 1024 * 1024
DELETE_BATCH = 500
LIST_PAGES_LIMIT = 10_000
CONFLICT_LOOKS = 8
CONFLICT_WAIT_S = 0.25


class Store:
    """One bucket. Safe to share between threads; make one a process, up front."""

    def __init__(self, config: StoreConfig) -> None:
        """Build the client; nothing is sent before the first call."""
        self.bucket = config.bucket
        self._config = config
        self._s3 = self._connect()

    @classmethod
    def open(cls, settings: S3Settings) -> Self:
        """The store of a service's settings."""
        return cls(
            StoreConfig(settings.s3_endpoint, settings.s3_access_key, settings.s3_secret_key, settings.s3_bucket)
        )

    def uri(self, key: str) -> str:
        """`s3://bucket/key` of an object here."""
        return keys.uri(self.bucket, key)

    def key(self, uri: str) -> str:
        """Key of an object in this bucket. Raises RefusedError for another bucket's."""
        bucket, key = keys.split_uri(uri)
        if bucket != self.bucket:
            msg = f"uri {uri!r} is in bucket {bucket!r}, this store has {self.bucket!r}: put the object there first"
            raise RefusedError(msg)
        return key

    def put(self, key: str, data: bytes | Path, sha256: str | None = None, *, verify: bool = True) -> Digest:
        """Write an object and read it back. `sha256` is what the caller believes the bytes to be.

        Raises DamagedError when the source differs from `sha256` (it changed, or was torn) or the store gives back
        other bytes; the damaged object is then removed.
        """
        keys.check_key(key)
        digest = digest_of(data)
        if sha256 is not None and sha256 != digest.sha256:
            msg = f"put {key}: the source has SHA-256 {digest.sha256}, {sha256} was promised: write the source again"
            raise DamagedError(msg)
        self._send(key, data, digest.size_bytes)
        if verify:
            self._expect(key, digest)
        return digest

    def put_if_absent(self, key: str, data: bytes) -> Created | Exists:
        """Write an object unless there is one (If-None-Match: *), and say which.

        `Exists` may be one's own write whose answer was lost: compare the content. Raises UnavailableError when writes
        of this key keep colliding or the store does not answer.
        """
        keys.check_key(key)
        for look in range(CONFLICT_LOOKS):
            try:
                with told(f"put {self.uri(key)} if absent"):
                    self._s3.put_object(Bucket=self.bucket, Key=key, Body=data, IfNoneMatch="*")
            except PreconditionError:
                existing = self._look(key)
            except ConflictError:
                time.sleep(CONFLICT_WAIT_S * (look + 1))
                existing = self._look(key)
            else:
                self._expect(key, digest_of(data))
                return Created()
            if existing is not None:
                return Exists(existing)
        msg = f"put {self.uri(key)} if absent: {CONFLICT_LOOKS} tries met other writers, none left an object: try later"
        raise UnavailableError(msg)

    def get(self, key: str, limit_bytes: int = GET_BYTES_LIMIT) -> bytes:
        """Read a small object whole. Raises MissingError, or RefusedError above `limit_bytes`: use get_to there."""
        stream = reading.open_object(self._s3, self.bucket, key)
        if stream.size_bytes > limit_bytes:
            stream.body.close()
            msg = f"get {stream.uri}: {stream.size_bytes} bytes, {limit_bytes} allowed in memory: use get_to"
            raise RefusedError(msg)
        return b"".join(reading.chunks(self._s3, self.bucket, key, stream))

    def get_version(self, key: str) -> Version:
        """Read a small object and the name of this version of it. Raises MissingError."""
        stream = reading.open_object(self._s3, self.bucket, key)
        return Version(b"".join(reading.chunks(self._s3, self.bucket, key, stream)), stream.etag)

    def get_to(self, key: str, path: Path, sha256: str | None = None) -> Digest:
        """Read an object into a file, which appears whole or not at all. Raises MissingError, DamagedError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        hasher, size_bytes = hashlib.sha256(), 0
        try:
            with partial.open("wb") as file:
                for chunk in self._read(key):
                    file.write(chunk)
                    hasher.update(chunk)
                    size_bytes += len(chunk)
                file.flush()
                os.fsync(file.fileno())
            digest = Digest(hasher.hexdigest(), size_bytes)
            if sha256 is not None and digest.sha256 != sha256:
                raise DamagedError(_differs(self.uri(key), digest, sha256))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return digest

    def digest(self, key: str) -> Digest:
        """SHA-256 of what the store gives back now, streamed. Raises MissingError."""
        hasher, size_bytes = hashlib.sha256(), 0
        for chunk in self._read(key):
            hasher.update(chunk)
            size_bytes += len(chunk)
        return Digest(hasher.hexdigest(), size_bytes)

    def head(self, key: str) -> Head:
        """Size and version of an object. Raises MissingError; a missing bucket is RefusedError, never missing."""
        try:
            with told(f"head {self.uri(key)}"):
                reply: Any = self._s3.head_object(Bucket=self.bucket, Key=keys.check_key(key))
        except MissingError:
            self._check_bucket()
            raise
        return Head(key, int(reply["ContentLength"]), reply["LastModified"], str(reply["ETag"]))

    def list(self, prefix: str) -> list[Listed]:
        """Every object under a prefix, in order of key. Complete, or an error: never a part of it."""
        found = [Listed(item["Key"], int(item["Size"]), item["LastModified"]) for item in self._pages(prefix)]
        return sorted(found, key=lambda item: item.key)

    def delete(self, object_keys: Sequence[str]) -> None:
        """Remove objects; one that is gone already is fine. Raises UnavailableError when any could not be removed."""
        for start in range(0, len(object_keys), DELETE_BATCH):
            batch = [{"Key": keys.check_key(key)} for key in object_keys[start : start + DELETE_BATCH]]
            with told(f"delete {len(batch)} objects from {self.bucket}"):
                reply: Any = self._s3.delete_objects(Bucket=self.bucket, Delete={"Objects": batch, "Quiet": True})
            errors: Any = reply.get("Errors", [])
            if errors:
                code = errors[0].get("Code", "unknown")
                msg = f"delete {self.uri(errors[0]['Key'])}: {code}, {len(errors)} objects are left: try again"
                raise UnavailableError(msg)

    def delete_version(self, key: str, etag: str) -> bool:
        """Remove an object if it is still the version `etag` (If-Match); False when it is gone or another one."""
        try:
            with told(f"delete {self.uri(key)} if unchanged"):
                self._s3.delete_object(Bucket=self.bucket, Key=keys.check_key(key), IfMatch=etag)
        except (PreconditionError, MissingError):
            return False
        return True

    def copy(self, source: str, target: str, size_bytes: int) -> None:
        """Copy inside the bucket without moving bytes through here; by parts where one request cannot.

        The copy is not read back here: `digest` or its reader does that. Raises MissingError.
        """
        keys.check_key(source)
        keys.check_key(target)
        if size_bytes > multipart.COPY_LIMIT_BYTES:
            multipart.copy(self._s3, self.bucket, source, target, size_bytes)
            return
        with told(f"copy {self.uri(source)} to {target}"):
            self._s3.copy_object(Bucket=self.bucket, Key=target, CopySource={"Bucket": self.bucket, "Key": source})

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        """End multipart uploads under a prefix that were begun before a time and never finished; return how many."""
        return multipart.abort_stale(self._s3, self.bucket, prefix, before)

    def wait_ready(self, probe_key: str, timeout_s: float) -> None:
        """Make the bucket and wait until a WRITE reads back; see `libs.objects.admission`."""
        probe = self._connect(attempts=1)
        try:
            admission.wait_ready(probe, self.bucket, probe_key, timeout_s)
        finally:
            probe.close()

    def close(self) -> None:
        """Close connections."""
        self._s3.close()

    def _connect(self, **options: int) -> S3:
        config = self._config
        secret = config.secret_key.get_secret_value()
        return connect(config.endpoint, config.access_key, secret, config.region, **options)

    def _send(self, key: str, data: bytes | Path, size_bytes: int) -> None:
        if isinstance(data, bytes):
            with told(f"put {self.uri(key)}"):
                self._s3.put_object(Bucket=self.bucket, Key=key, Body=data)
        elif size_bytes > LARGE_BYTES:
            multipart.upload(self._s3, self.bucket, key, data, size_bytes)
        else:
            with data.open("rb") as file, told(f"put {self.uri(key)}"):
                self._s3.put_object(Bucket=self.bucket, Key=key, Body=file)

    def _expect(self, key: str, digest: Digest) -> None:
        found = self.digest(key)
        if found != digest:
            self.delete([key])
            raise DamagedError(_differs(self.uri(key), found, digest.sha256))

    def _look(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except MissingError:
            return None

    def _read(self, key: str) -> Iterator[bytes]:
        return reading.chunks(self._s3, self.bucket, key, reading.open_object(self._s3, self.bucket, key))

    def _pages(self, prefix: str) -> Iterator[Any]:
        more: dict[str, str] = {}
        for _ in range(LIST_PAGES_LIMIT):
            with told(f"list {self.uri(prefix)}"):
                page: Any = self._s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix, **more)
            yield from page.get("Contents", [])
            if not page["IsTruncated"]:
                return
            if "NextContinuationToken" not in page:
                msg = f"list {self.uri(prefix)}: the store has more and does not say where: nothing is taken from it"
                raise UnavailableError(msg)
            more = {"ContinuationToken": page["NextContinuationToken"]}
        msg = f"list {self.uri(prefix)}: more than {LIST_PAGES_LIMIT} pages: list a longer prefix"
        raise RefusedError(msg)

    def _check_bucket(self) -> None:
        try:
            with told(f"head bucket {self.bucket}"):
                self._s3.head_bucket(Bucket=self.bucket)
        except MissingError as error:
            msg = f"bucket {self.bucket!r} is not on {self._config.endpoint}: make it with wait_ready"
            raise RefusedError(msg) from error


def _differs(uri: str, found: Digest, sha256: str) -> str:
    return f"{uri} has SHA-256 {found.sha256} ({found.size_bytes} bytes), {sha256} was promised: write it again"
