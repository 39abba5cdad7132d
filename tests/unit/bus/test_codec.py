"""Properties of the CloudEvents codec: the SDK understands what it sends, and nothing it receives makes it raise."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from contracts import registry
from contracts.base import Reason, ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import JobRejected
from libs.bus import Event, Invalid
from libs.bus.codec import MAX_ATTRIBUTE_CHARS, Envelope, decode, decode_value, encode, encode_value
from libs.telemetry.context import Trace, from_headers

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
SUBJECT = registry.JOBS_REJECTED.subject("acme")

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60)
times = st.integers(min_value=946684800_000_000, max_value=4102444800_000_000).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
envelopes = st.builds(
    Envelope,
    id=text,
    source=text,
    subject=text,
    sequence=st.integers(min_value=0, max_value=2**63 - 1),
    actor=text,
    incarnation=st.none() | text,
    time=times,
)


def body(words: str = "no") -> JobRejected:
    reason = Reason(code=ReasonCode.INVALID, message=words)
    return JobRejected(submission_id="x", tenant="acme", reason=reason, rejected_at=NOW)


def read(headers: dict[str, str], data: bytes, subject: str = SUBJECT) -> Event[JobRejected] | Invalid:
    return decode(registry.JOBS_REJECTED, subject, headers, data, received_at=NOW)


def attributes(envelope: Envelope) -> dict[str, object]:
    """The same message in the SDK's in-memory form."""
    named: dict[str, object | None] = {
        "specversion": "1.0",
        "type": registry.JOBS_REJECTED.type,
        "id": envelope.id,
        "source": envelope.source,
        "subject": envelope.subject,
        "time": envelope.time,
        "datacontenttype": "application/json",
        "sequence": str(envelope.sequence),
        "actor": envelope.actor,
        "incarnation": envelope.incarnation,
    }
    return {name: value for name, value in named.items() if value is not None}


LIFE = f"00-{'a' * 32}-{'b' * 16}-01"
HOP = f"00-{'a' * 32}-{'c' * 16}-01"


@given(envelopes, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_what_is_encoded_is_decoded(envelope: Envelope, words: str) -> None:
    headers, data = encode(registry.JOBS_REJECTED, body(words), envelope, Trace(LIFE, HOP))
    event = read(headers, data)
    assert isinstance(event, Event)
    assert event.body == body(words)
    assert (event.id, event.source, event.subject) == (envelope.id, envelope.source, envelope.subject)
    assert (event.sequence, event.actor, event.incarnation) == (
        envelope.sequence,
        envelope.actor,
        envelope.incarnation,
    )
    assert (event.time, event.key, event.traceparent) == (envelope.time, "acme", LIFE)


@given(envelopes)
def test_the_sdk_reads_what_we_send(envelope: Envelope) -> None:
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    over_http = {name: value for name, value in headers.items() if name != "ce-datacontenttype"}
    event = from_binary(HTTPMessage(headers=over_http, body=data), JSONFormat())
    assert event.get_attributes() == attributes(envelope)
    assert event.get_data() == body().model_dump(mode="json")


@given(envelopes)
def test_we_read_what_the_sdk_sends(envelope: Envelope) -> None:
    message = to_binary(CloudEvent(attributes(envelope), body().model_dump(mode="json")), JSONFormat())
    event = read(dict(message.headers), message.body)
    assert isinstance(event, Event)
    assert (event.id, event.source, event.time) == (envelope.id, envelope.source, envelope.time)
    assert (event.actor, event.sequence) == (envelope.actor, envelope.sequence)
    assert event.body == body()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_values_survive_and_are_printable_ascii(value: str) -> None:
    encoded = encode_value(value)
    assert decode_value(encoded) == value
    assert all(0x21 <= ord(char) <= 0x7E and char != '"' for char in encoded)


names = st.sampled_from(
    ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-subject", "ce-sequence", "ce-actor", "CE-ID"]
)
values = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["1.0", registry.JOBS_REJECTED.type, "%", "%ff", "%C3%A4"]
)


@given(st.dictionaries(names | st.text(max_size=10), values), st.binary(max_size=60), st.text(max_size=30))
def test_nothing_received_makes_decoding_raise(headers: dict[str, str], data: bytes, subject: str) -> None:
    assert isinstance(read(headers, data, subject), Event | Invalid)


@given(st.sampled_from(["specversion", "id", "source", "type", "time", "subject", "sequence", "actor"]), envelopes)
def test_an_event_without_one_of_its_attributes_is_refused(name: str, envelope: Envelope) -> None:
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    del headers[f"ce-{name}"]
    decoded = read(headers, data)
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.MISSING_ATTRIBUTE
    assert name in decoded.message


def test_header_names_are_read_in_any_case_and_written_in_lower_case() -> None:
    envelope = Envelope("1", "/x", "s", 1, "a", None, NOW)
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    assert all(name == name.lower() for name in headers if name != "Nats-Msg-Id")
    assert isinstance(read({name.upper(): value for name, value in headers.items()}, data), Event)


def test_times_of_other_zones_become_utc() -> None:
    envelope = Envelope("1", "/x", "s", 1, "a", None, NOW.astimezone(timezone(timedelta(hours=8))))
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    assert headers["ce-time"] == "2026-01-02T03:04:05.000006Z"
    headers["ce-time"] = "2026-01-02T11:04:05.000006+08:00"
    event = read(headers, data)
    assert isinstance(event, Event)
    assert event.time == NOW


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_a_time_that_utc_cannot_hold_is_refused(time: str) -> None:
    envelope = Envelope("1", "/x", "s", 1, "a", None, NOW)
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    decoded = read({**headers, "ce-time": time}, data)
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.BAD_ATTRIBUTE
    decoded = read(headers, data.replace(b"2026-01-02T03:04:05.000006Z", time.encode()))
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.SCHEMA
    assert "years 1 to 9999" in decoded.message


def test_nul_is_refused_where_postgres_could_not_keep_it() -> None:
    envelope = Envelope("1", "/x", "s", 1, "a", None, NOW)
    headers, data = encode(registry.JOBS_REJECTED, body("a\0b"), envelope, None)
    decoded = read(headers, data)
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.SCHEMA
    headers, data = encode(registry.JOBS_REJECTED, body("a \\u0000 b"), envelope, None)
    assert isinstance(read(headers, data), Event)
    decoded = read({**headers, "ce-id": "a%00b"}, data)
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.BAD_ATTRIBUTE
    assert decoded.id == "a%00b"


@pytest.mark.parametrize("sent", ["x" * 100_000, "00-\0", "00-" + "0" * 32 + "-" + "0" * 16, ""])
def test_what_is_no_traceparent_is_not_carried_on(sent: str) -> None:
    """It would be kept with the job and sent with each of its events, which a long one makes too large for the bus."""
    good = "00-" + "1" * 32 + "-" + "2" * 16 + "-03"
    assert from_headers({"traceparent": sent, "ce-traceparent": sent}) is None
    assert from_headers({"traceparent": sent, "ce-traceparent": good}) == Trace(good, good)
    assert from_headers({"traceparent": good, "ce-traceparent": sent}) == Trace(good, good)


def test_an_endless_attribute_is_refused() -> None:
    envelope = Envelope("1", "/x", "s", 1, "a" * (MAX_ATTRIBUTE_CHARS + 1), None, NOW)
    headers, data = encode(registry.JOBS_REJECTED, body(), envelope, None)
    decoded = read(headers, data)
    assert isinstance(decoded, Invalid)
    assert decoded.reason is DeadReason.BAD_ATTRIBUTE


def test_faults_of_a_body_name_field_value_and_expectation() -> None:
    headers, _ = encode(registry.JOBS_REJECTED, body(), Envelope("1", "/x", "s", 1, "a", None, NOW), None)
    decoded = read(headers, b'{"submission_id": 7, "tenant": "acme", "reason": {"code": "No!", "message": "m"}}')
    assert isinstance(decoded, Invalid)
    assert "submission_id is 7: Input should be a valid string" in decoded.message
    assert "reason.code is 'No!'" in decoded.message
    assert "rejected_at is missing" in decoded.message
