"""Dead letters: messages that a consumer could not process, kept whole with the reason."""

from enum import StrEnum
from typing import Annotated

from pydantic import Base64Bytes, WithJsonSchema

from contracts.base import Count, Label, Model, Open, Positive, Text, Utc


class DeadReason(StrEnum):
    """Why a message was put aside; docs/runbook.md has an entry for each."""

    UNKNOWN_TYPE = "unknown_type"
    MISSING_ATTRIBUTE = "missing_attribute"
    BAD_ATTRIBUTE = "bad_attribute"
    WRONG_VERSION = "wrong_version"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    SCHEMA = "schema"
    KEY_MISMATCH = "key_mismatch"
    REFUSED = "refused"
    HANDLER_FAILED = "handler_failed"


# Base64 as RFC 2045 writes it: line breaks are allowed.
Bytes = Annotated[
    Base64Bytes,
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": r"^[A-Za-z0-9+/\s]*={0,2}\s*$"}),
]


class DeadLetter(Model):
    """The original message (`headers`, `data`) and where it stood when `consumer` gave up on it."""

    consumer: Label
    reason: Open[DeadReason]
    message: Text
    subject: Text
    headers: dict[str, str]
    data: Bytes
    stream: Label
    stream_sequence: Count
    deliveries: Positive
    died_at: Utc
