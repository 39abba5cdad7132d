"""CloudEvents 1.0 on NATS in binary mode: a message of the registry <-> headers and JSON bytes.

Every attribute is a `ce-*` header with a lower-case name; values are percent-encoded once. Decoding is strict and never
raises: what is not a valid message becomes an `Invalid` with the reason for its dead letter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote, unquote_to_bytes

from pydantic import ValidationError

from contracts import registry
from contracts.base import MAX_ATTRIBUTE_CHARS, MAX_BODY_BYTES, Model
from contracts.deadletters import DeadReason
from contracts.nodes import NodeAnnounced
from contracts.registry import Key, Kind, Message
from libs.bus.events import Delivery, Event, Invalid
from libs.telemetry.context import HOP_HEADER, LIFE_HEADER, Trace, from_lower

M = TypeVar("M", bound=Model)

JSON = "application/json"
SPEC_VERSION = "1.0"
MSG_ID = "Nats-Msg-Id"
SHORTEST_DEDUP_S = 1.0  # where outsiders publish the window is shorter, and an id in it could be another's
CONTENT_TYPE = "content-type"
MAX_DETAIL_CHARS = 2000
MAX_DEAD_LETTER_BYTES = 2 * MAX_BODY_BYTES - 64 * 1024
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN = re.compile(r"[!#$&-~]*")  # all of _SAFE: what is the same encoded and decoded
_KEY = {
    Key.TENANT: re.compile(r"[a-z0-9-]{1,63}"),
    Key.NODE: re.compile(r"[a-z0-9-]{1,63}"),
    Key.CONSUMER: re.compile(r"[a-z0-9-]{1,191}"),
    Key.NONE: re.compile(r"_"),
}
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_TYPE = re.compile(r"io\.farside\.([a-z_-]+)\.([a-z_-]+)\.v([0-9]{1,4})")


class _BadError(Exception):
    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail[:MAX_DETAIL_CHARS]


def encode_value(value: str) -> str:
    """Percent-encode an attribute's value as the CloudEvents bindings ask: once, all but printable ASCII."""
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)


def decode_value(value: str) -> str:
    """Undo `encode_value`; raises UnicodeError for what is no UTF-8."""
    return value if _PLAIN.fullmatch(value) else unquote_to_bytes(value).decode("utf-8")


def valid_key(kind: Key, key: str) -> bool:
    """Whether `key` may stand as the last token of a subject."""
    return _KEY[kind].fullmatch(key) is not None


def has_nul(text: str) -> bool:
    """Whether a JSON text holds the character NUL, which PostgreSQL keeps in no string."""
    return "\\u0000" in text and _NUL.search(text) is not None


def max_body_bytes(message: Message[Model]) -> int:
    """What the body of `message` may have; that of a dead letter holds another's, in base64."""
    return MAX_DEAD_LETTER_BYTES if message is registry.DEADLETTERED else MAX_BODY_BYTES


def time_text(value: datetime) -> str:
    """RFC 3339 in UTC with microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Envelope:
    """The attributes of one message to be sent, beside its type; see `Event` for their meaning."""

    id: str
    source: str
    subject: str | None
    sequence: int | None
    actor: str | None
    incarnation: str | None
    time: datetime


def encode(message: Message[M], body: M, envelope: Envelope, trace: Trace | None) -> tuple[dict[str, str], bytes]:
    """The headers and data of one message."""
    attributes = {
        "specversion": SPEC_VERSION,
        "id": envelope.id,
        "source": envelope.source,
        "type": message.type,
        "time": time_text(envelope.time),
        "datacontenttype": JSON,
        "subject": envelope.subject,
        "sequence": None if envelope.sequence is None else str(envelope.sequence),
        "actor": envelope.actor,
        "incarnation": envelope.incarnation,
    }
    headers = {f"ce-{name}": encode_value(value) for name, value in attributes.items() if value is not None}
    headers[CONTENT_TYPE] = JSON
    if message.stream.dedup_s >= SHORTEST_DEDUP_S:
        headers[MSG_ID] = envelope.id
    if trace is not None:
        headers[LIFE_HEADER] = trace.life
        headers[HOP_HEADER] = trace.hop
    return headers, body.model_dump_json().encode()


def decode(
    message: Message[M],
    subject: str,
    headers: Mapping[str, str],
    data: bytes,
    *,
    received_at: datetime,
    delivery: Delivery | None = None,
) -> Event[M] | Invalid:
    """Decode what arrived on `subject` as `message`. `received_at` stands in for a missing `ce-time`."""
    lower = {name.lower(): value for name, value in headers.items()}
    key = subject.rpartition(".")[2]
    try:
        attributes = _attributes(lower)
        _check_envelope(message, key, attributes, lower)
        sequence = _sequence(attributes["sequence"]) if "sequence" in attributes else None
        time = _time(attributes["time"]) if "time" in attributes else received_at
        body = _body(message, data)
        trace = from_lower(lower)
        _check_key(message, key, body)
        return Event(
            message=message,
            body=body,
            id=attributes["id"],
            source=attributes["source"],
            key=key,
            subject=attributes.get("subject"),
            sequence=sequence,
            actor=attributes.get("actor"),
            incarnation=attributes.get("incarnation"),
            time=time,
            traceparent=None if trace is None else trace.life,
            delivery=delivery,
        )
    except _BadError as bad:
        return _invalid(bad, subject, headers, data, delivery)


def _invalid(
    bad: _BadError, subject: str, headers: Mapping[str, str], data: bytes, delivery: Delivery | None
) -> Invalid:
    lower = {name.lower(): value for name, value in headers.items()}
    return Invalid(
        key=subject.rpartition(".")[2],
        id=readable(lower.get("ce-id")),
        source=readable(lower.get("ce-source")),
        subject=subject,
        headers=dict(headers),
        data=data,
        reason=bad.reason,
        detail=bad.detail,
        delivery=delivery,
    )


def readable(value: str | None) -> str | None:
    """An attribute as words to keep, of whatever message: decoded where that gives text to keep, else as it stands."""
    try:
        decoded = None if value is None else decode_value(value)
    except UnicodeError:
        decoded = None
    if decoded is not None and "\0" not in decoded:
        return decoded
    return None if value is None else value.encode("utf-8", "backslashreplace").decode()


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if not name.startswith("ce-"):
            continue
        if len(value) > MAX_ATTRIBUTE_CHARS:
            detail = f"attribute {name} has {len(value)} characters, the limit is {MAX_ATTRIBUTE_CHARS}"
            raise _BadError(DeadReason.BAD_ATTRIBUTE, detail)
        try:
            attributes[name[3:]] = decode_value(value)
        except UnicodeError:  # also of characters that no UTF-8 has: bytes of a header that were none
            detail = f"attribute {name} is {value!r}: percent-encoded bytes must be UTF-8"
            raise _BadError(DeadReason.BAD_ATTRIBUTE, detail) from None
        if "\0" in attributes[name[3:]]:
            raise _BadError(DeadReason.BAD_ATTRIBUTE, f"attribute {name} is {value!r}: it must hold no NUL character")
    return attributes


def _check_envelope(
    message: Message[Model], key: str, attributes: Mapping[str, str], headers: Mapping[str, str]
) -> None:
    required = ["specversion", "id", "source", "type"]
    if message.kind is Kind.EVENT:
        required += ["time", "subject", "sequence", "actor"]
    for name in required:
        if not attributes.get(name):
            raise _BadError(DeadReason.MISSING_ATTRIBUTE, f"header ce-{name} is missing, a {message.kind} has it")
    if attributes["specversion"] != SPEC_VERSION:
        detail = f"ce-specversion is {attributes['specversion']!r}, this reader knows {SPEC_VERSION}"
        raise _BadError(DeadReason.WRONG_VERSION, detail)
    _check_type(message, attributes["type"])
    content_type = attributes.get("datacontenttype") or headers.get(CONTENT_TYPE) or JSON
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise _BadError(DeadReason.BAD_ATTRIBUTE, f"ce-datacontenttype is {content_type!r}, it must be {JSON}")
    if not valid_key(message.key, key):
        detail = f"the last token of the subject is {key!r}: a {message.key} matches [a-z0-9-]{{1,63}}"
        raise _BadError(DeadReason.BAD_ATTRIBUTE, detail)


def _check_type(message: Message[Model], type_: str) -> None:
    if type_ == message.type:
        return
    match = _TYPE.fullmatch(type_)
    if match is not None and (match[1], match[2]) == (message.domain, message.name):
        detail = f"ce-type is {type_!r}, this consumer reads version {message.version}"
        raise _BadError(DeadReason.WRONG_VERSION, detail)
    if registry.by_type(type_) is not None:
        detail = f"ce-type is {type_!r}, which does not belong on the subject of {message.type}"
    else:
        detail = f"ce-type is {type_!r}, which is no message of the registry; here belongs {message.type}"
    raise _BadError(DeadReason.UNKNOWN_TYPE, detail)


def _sequence(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise _BadError(DeadReason.BAD_ATTRIBUTE, f"ce-sequence is {text!r}, it must be a whole number")
    return int(text)


def _time(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
        utc = None if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: beyond the years 1 to 9999 once it is in UTC
        utc = None
    if utc is None:
        raise _BadError(DeadReason.BAD_ATTRIBUTE, f"ce-time is {text!r}, it must be RFC 3339 with a zone")
    return utc


def _body(message: Message[M], data: bytes) -> M:
    limit = max_body_bytes(message)
    if len(data) > limit:
        raise _BadError(DeadReason.TOO_LARGE, f"the body has {len(data)} bytes, the limit is {limit}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _BadError(DeadReason.NOT_UTF8, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    if has_nul(text):
        raise _BadError(DeadReason.SCHEMA, "a string of the body holds the character NUL (\\u0000): leave it out")
    try:
        return message.model.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise _BadError(DeadReason.NOT_JSON, f"the body is not JSON: {first['msg']}") from None
        raise _BadError(DeadReason.SCHEMA, explain(error)) from None


def explain(error: ValidationError) -> str:
    """The faults of a body in one line: field, value and what was expected."""
    parts: list[str] = []
    for fault in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in fault["loc"]) or "body"
        value = repr(fault["input"])
        shown = value if len(value) <= 80 else f"{value[:77]}..."  # noqa: PLR2004 - fits a line of a terminal
        parts.append(f"{where} is {shown}: {fault['msg']}" if fault["type"] != "missing" else f"{where} is missing")
    return "; ".join(parts)[:MAX_DETAIL_CHARS]


def _check_key(message: Message[Model], key: str, body: Model) -> None:
    facts: object = body.facts if isinstance(body, NodeAnnounced) else body
    if message.key not in {Key.TENANT, Key.NODE}:
        return
    named = getattr(facts, message.key.value, key)
    if named != key:
        detail = f"the subject names {message.key} {key!r} but the body names {named!r}: they must be the same"
        raise _BadError(DeadReason.KEY_MISMATCH, detail)
