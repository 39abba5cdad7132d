"""Large objects by parts: uploads and server-side copies, with a bound on memory and on parts in flight.

A failed upload is aborted at once; one whose process died is found by `abort_stale`, so no parts stay for ever.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice, repeat
from pathlib import Path
from typing import TypeAlias

from libs.objects.errors import ChangedError, ObjectsError, RefusedError
from libs.objects.faults import told
from libs.objects.wire import S3

MIN_PART_BYTES = 16 * 1024 * 1024
MAX_PARTS = 10_000
COPY_LIMIT_BYTES = 1024**3  # S3 allows 5 GiB; a smaller one is answered well before the read timeout
COPY_PART_BYTES = 256 * 1024 * 1024
PARTS_IN_FLIGHT = 3
UPLOAD_PAGES_LIMIT = 1000

Part: TypeAlias = dict[str, int | str]


def part_size(size_bytes: int, smallest_bytes: int) -> int:
    """Bytes a part, so that `size_bytes` fit into the most parts that S3 takes."""
    return max(smallest_bytes, -(-size_bytes // MAX_PARTS))


def ranges(size_bytes: int, part_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(part number, first byte, length) of each part."""
    for number, start in enumerate(range(0, size_bytes, part_bytes), start=1):
        yield number, start, min(part_bytes, size_bytes - start)


def upload(s3: S3, bucket: str, key: str, path: Path, size_bytes: int, smallest_bytes: int = MIN_PART_BYTES) -> None:
    """Send a file by parts. Raises ChangedError when it shrinks meanwhile."""
    what = f"put s3://{bucket}/{key} by parts"

    def send(upload_id: str, number: int, start: int, length: int) -> Part:
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(length)
        if len(body) != length:
            msg = f"{what}: {path} shrank below {start + length} bytes while it was sent: send it again"
            raise ChangedError(msg)
        with told(what):
            reply = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=body)
        return {"PartNumber": number, "ETag": reply["ETag"]}

    _by_parts(s3, bucket, key, size_bytes, part_size(size_bytes, smallest_bytes), send)


def copy(s3: S3, bucket: str, source: str, target: str, size_bytes: int, smallest_bytes: int = COPY_PART_BYTES) -> None:
    """Copy inside the bucket by parts."""
    what = f"copy s3://{bucket}/{source} to {target} by parts"

    def send(upload_id: str, number: int, start: int, length: int) -> Part:
        with told(what):
            reply = s3.upload_part_copy(
                Bucket=bucket,
                Key=target,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": bucket, "Key": source},
                CopySourceRange=f"bytes={start}-{start + length - 1}",
            )
        return {"PartNumber": number, "ETag": reply["CopyPartResult"]["ETag"]}

    _by_parts(s3, bucket, target, size_bytes, part_size(size_bytes, smallest_bytes), send)


def abort_stale(s3: S3, bucket: str, prefix: str, before: datetime) -> int:
    """End uploads under `prefix` begun before a time; return how many."""
    stale = [upload for upload in _uploads(s3, bucket, prefix) if upload[2] < before]
    for key, upload_id, _ in stale:
        with told(f"abort upload of s3://{bucket}/{key}"):
            s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    return len(stale)


def _by_parts(
    s3: S3,
    bucket: str,
    key: str,
    size_bytes: int,
    part_bytes: int,
    send: Callable[[str, int, int, int], Part],
) -> None:
    what = f"s3://{bucket}/{key} by parts"
    with told(f"begin {what}"):
        upload_id = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    try:
        parts = _send_all(upload_id, ranges(size_bytes, part_bytes), send)
        with told(f"complete {what}"):
            s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts})
    except BaseException:
        _abort(s3, bucket, key, upload_id)
        raise


def _send_all(
    upload_id: str, parts: Iterator[tuple[int, int, int]], send: Callable[[str, int, int, int], Part]
) -> list[Part]:
    """All parts, PARTS_IN_FLIGHT at a time; the first failure ends it."""
    done: list[Part] = []
    with ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="part") as pool:
        while batch := list(islice(parts, PARTS_IN_FLIGHT)):
            done.extend(pool.map(send, repeat(upload_id), *zip(*batch, strict=True)))
    return done


def _abort(s3: S3, bucket: str, key: str, upload_id: str) -> None:
    try:
        with told(f"abort upload of s3://{bucket}/{key}"):
            s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    except ObjectsError:
        return  # abort_stale finds it later; the first error is the one to tell


def _uploads(s3: S3, bucket: str, prefix: str) -> Iterator[tuple[str, str, datetime]]:
    key_marker, id_marker = "", ""
    for _ in range(UPLOAD_PAGES_LIMIT):
        with told(f"list uploads of s3://{bucket}/{prefix}"):
            page = s3.list_multipart_uploads(
                Bucket=bucket, Prefix=prefix, KeyMarker=key_marker, UploadIdMarker=id_marker
            )
        for upload in page.get("Uploads", []):
            yield upload["Key"], upload["UploadId"], upload["Initiated"]
        if not page["IsTruncated"]:
            return
        key_marker, id_marker = page.get("NextKeyMarker", ""), page.get("NextUploadIdMarker", "")
    msg = f"list uploads of s3://{bucket}/{prefix}: more than {UPLOAD_PAGES_LIMIT} pages: use a longer prefix"
    raise RefusedError(msg)
