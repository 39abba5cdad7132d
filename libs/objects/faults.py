"""botocore's many exceptions, told apart into those of `libs.objects.errors`."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from libs.objects.errors import MissingError, ObjectsError, RefusedError, UnavailableError

_SERVER_ERROR = 500
_PRECONDITION_FAILED = 412


class PreconditionError(ObjectsError):
    """412: the condition did not hold."""


class ConflictError(ObjectsError):
    """409: another conditional write of the same key is under way."""


class BucketExistsError(ObjectsError):
    """The bucket that was to be made is there."""


_GONE = (MissingError, "no such object: check the key, or whether it has expired")
_LATER = (UnavailableError, "the store cannot now: try again later")
_COLLIDED = (ConflictError, "another write of this key is under way")
_BY_CODE: dict[str, tuple[type[ObjectsError], str]] = {
    "NoSuchKey": _GONE,
    "NoSuchUpload": _GONE,
    "404": _GONE,
    "BucketAlreadyOwnedByYou": (BucketExistsError, "the bucket is there"),
    "BucketAlreadyExists": (BucketExistsError, "the bucket is there"),
    "ConditionalRequestConflict": _COLLIDED,
    "OperationAborted": _COLLIDED,
    "RequestTimeTooSkewed": (UnavailableError, "this machine's clock differs too much from the store's: set the time"),
    "SlowDown": _LATER,
    "RequestTimeout": _LATER,
    "Throttling": _LATER,
}


@contextmanager
def told(what: str) -> Generator[None]:
    """Run a store call ("get s3://b/k"); whatever botocore raises leaves as an ObjectsError."""
    try:
        yield
    except ClientError as error:
        raise _from_reply(error, what) from error
    except (BotoCoreError, ConnectionError, TimeoutError) as error:
        msg = f"{what}: no full answer from the store ({error}): check that it runs, then try again"
        raise UnavailableError(msg) from error


def _from_reply(error: ClientError, what: str) -> ObjectsError:
    code, status = _code_and_status(error)
    if code in _BY_CODE:
        kind, words = _BY_CODE[code]
    elif status == _PRECONDITION_FAILED:
        kind, words = PreconditionError, "the condition did not hold"
    elif status >= _SERVER_ERROR or status == 0:
        kind, words = _LATER
    else:
        kind, words = RefusedError, "the store refused: check bucket, name and rights"
    return kind(f"{what}: {words} ({code or status})")


def _code_and_status(error: ClientError) -> tuple[str, int]:
    """The store's error code, and the HTTP status (0 where it gave none)."""
    response = cast("dict[str, Any]", error.response)
    code = response.get("Error", {}).get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(code), int(status)
