r"""Where things lie in the bucket, and names that every store keeps as they are.

A store may fold `//` and `\` into `/`, resolve `.` and `..`, or drop a trailing slash without a word (SeaweedFS 4.48
does), so two names become one object. `check_key` refuses such keys; `escape_path` writes any file name as a key part
that is kept, byte for byte, and `unescape_path` is its inverse.
"""

import codecs
import re
from datetime import datetime

from libs.objects.errors import RefusedError

MAX_KEY_BYTES = 1024
MARKER_NAME = "COMMIT.json"
MANIFEST_NAME = "MANIFEST.json"
_HEX_LENGTH = 2
_HEX_DIGITS = frozenset(b"0123456789ABCDEFabcdef")
_SHARD = re.compile(r"checkpoints/[^/]+/[^/]+/([0-9]{12,})/a([0-9]{6,})/shard-[0-9]{5,}\.safetensors")
_ESCAPED = frozenset(b"%\\\x7f") | frozenset(range(0x20))


def check_key(key: str) -> str:
    """Return `key`, or raise RefusedError where a store could keep it under another name."""
    parts = key.split("/")
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError:
        msg = f"key {key!r} is not UTF-8: escape its file names with escape_path"
        raise RefusedError(msg) from None
    if size_bytes > MAX_KEY_BYTES:
        msg = f"key {key[:60]!r}... has {size_bytes} bytes, {MAX_KEY_BYTES} are allowed: use a shorter name"
        raise RefusedError(msg)
    if any(part in {"", ".", ".."} for part in parts) or "\\" in key or "\0" in key:
        msg = f"key {key!r} has an empty part, '.', '..', a backslash or NUL: stores fold these, escape the name"
        raise RefusedError(msg)
    return key


def escape_path(path: str | bytes) -> str:
    """Write a relative file path as text that is safe in keys, JSON and URLs' paths.

    Bytes that are not UTF-8, control characters, backslash and `%` become %XX; everything else stays readable.
    NFC and NFD twins stay two names.
    """
    raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    escaped = b"".join(b"%%%02X" % byte if byte in _ESCAPED else bytes([byte]) for byte in raw)
    return escaped.decode("utf-8", "farside-percent")


def unescape_path(text: str) -> bytes:
    """Give back the file path that `escape_path` wrote, as bytes. Raises RefusedError on a bad escape."""
    head, *rest = text.encode().split(b"%")
    pieces = [head]
    for piece in rest:
        code = piece[:2]
        if len(code) != _HEX_LENGTH or not _HEX_DIGITS.issuperset(code):
            msg = f"path {text!r} has a % that starts no %XX: write the path with escape_path"
            raise RefusedError(msg)
        pieces.append(bytes([int(code, 16)]) + piece[2:])
    return b"".join(pieces)


def _percent(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: write the bytes that are not UTF-8 as %XX."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"%{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("farside-percent", _percent)


def uri(bucket: str, key: str) -> str:
    """`s3://bucket/key`."""
    return f"s3://{bucket}/{key}"


def split_uri(text: str) -> tuple[str, str]:
    """Bucket and key of an s3 URI. Raises RefusedError for anything else."""
    scheme, separator, rest = text.partition("://")
    bucket, slash, key = rest.partition("/")
    if scheme != "s3" or not separator or not bucket or not slash or not key:
        msg = f"uri {text!r} names no object: write it as s3://bucket/key"
        raise RefusedError(msg)
    return bucket, key


def job_prefix(tenant: str, job_id: str) -> str:
    """All checkpoints of one job."""
    return f"checkpoints/{tenant}/{job_id}/"


def checkpoint_prefix(tenant: str, job_id: str, step: int) -> str:
    """One checkpoint: the marker and the prefixes of the attempts that tried to write it."""
    return f"{job_prefix(tenant, job_id)}{step:012d}/"


def attempt_prefix(tenant: str, job_id: str, step: int, attempt: int) -> str:
    """The immutable prefix in which one attempt writes its shards of one step."""
    return f"{checkpoint_prefix(tenant, job_id, step)}a{attempt:06d}/"


def shard_key(tenant: str, job_id: str, step: int, attempt: int, member: int) -> str:
    """One member's shard."""
    return f"{attempt_prefix(tenant, job_id, step, attempt)}shard-{member:05d}.safetensors"


def parse_shard_key(key: str) -> tuple[int, int] | None:
    """Step and attempt of a shard's key, or None for any other key."""
    match = _SHARD.fullmatch(key)
    return None if match is None else (int(match[1]), int(match[2]))


def marker_key(tenant: str, job_id: str, step: int) -> str:
    """The commit marker, written last and by the checkpoint service only."""
    return f"{checkpoint_prefix(tenant, job_id, step)}{MARKER_NAME}"


def dataset_prefix(tenant: str, name: str, version: str) -> str:
    """One staged dataset version."""
    return f"datasets/{tenant}/{name}/{version}/"


def upload_prefix(tenant: str, transfer_id: str) -> str:
    """Where a sender puts files for a transfer to stage."""
    return f"uploads/{tenant}/{transfer_id}/"


def manifest_key(prefix: str) -> str:
    """The manifest of a dataset version or an upload."""
    return f"{prefix}{MANIFEST_NAME}"


def file_key(prefix: str, path: str) -> str:
    """One file of a dataset version or an upload; `path` as the manifest writes it."""
    return f"{prefix}files/{path}"


def artefact_key(tenant: str, sha256: str) -> str:
    """A job's code."""
    return f"{artefact_area(tenant)}{sha256}.tar.gz"


def artefact_area(tenant: str) -> str:
    """Where a tenant's code lies."""
    return f"artefacts/{tenant}/"


def log_key(tenant: str, job_id: str, attempt: int, member: int, chunk: int) -> str:
    """One chunk of a member's log."""
    return f"logs/{tenant}/{job_id}/{attempt}/{member}/{chunk:08d}.log"


def usage_extract_key(tenant: str, hour: datetime, rollup_id: str) -> str:
    """The samples of one roll-up."""
    return f"usage/{tenant}/{hour:%Y-%m-%dT%H}/{rollup_id}.jsonl.gz"
