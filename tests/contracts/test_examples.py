"""Every message and request has examples; good ones are taken and bad ones refused for the reason they state.

Each is judged by all who will meet it: the pydantic model, the committed JSON Schema, the bus's codec and, for good
messages, the CloudEvents SDK.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from jsonschema.exceptions import ValidationError as SchemaError
from pydantic import ValidationError

from contracts import registry, schema
from contracts.base import Model
from contracts.deadletters import DeadReason
from libs.bus import codec
from libs.bus.events import Event, Invalid
from tests.contracts import examples
from tests.contracts.examples import Example
from tests.contracts.judge import faults

MESSAGES = {message.id: message for message in registry.MESSAGES}
REQUESTS = {request.id: request for request in registry.REQUESTS}
ARRIVAL = datetime(2026, 11, 30, 9, tzinfo=UTC)


def _of(kind: Iterable[str], found: Iterable[Example]) -> list[Example]:
    return [example for example in found if example.id in kind]


def _faults(id_: str, data: bytes) -> list[SchemaError]:
    """What the committed schema finds wrong."""
    path = examples.ROOT / "contracts" / "schemas" / f"{id_}.json"
    return faults(json.loads(path.read_text(encoding="utf-8")), json.loads(data))


def _places(fault: SchemaError) -> set[str]:
    """Where a fault of the JSON Schema lies, alternatives and conditions looked into."""
    path = [str(part) for part in fault.absolute_path]
    found = {".".join(path)}
    if fault.validator == "required":
        missing = fault.message.split("'")[1]
        found.add(".".join([*path, missing]))
    for inner in fault.context or []:
        found |= _places(inner)
    return found


def _pydantic_places(model: type[Model], data: bytes) -> set[str]:
    """Where pydantic refuses a body; a rule across fields tells the field first in its message."""
    with pytest.raises(ValidationError) as refused:
        model.model_validate_json(data, strict=True)
    found: set[str] = set()
    for fault in refused.value.errors():
        place = [str(part) for part in fault["loc"]]
        found.add(".".join(place))
        if fault["type"] == "value_error":
            field_name = fault["msg"].removeprefix("Value error, ").split()[0]
            found.add(".".join([*place, field_name]))
    return found


def _decode(example: Example) -> Event[Model] | Invalid:
    return codec.decode(MESSAGES[example.id], example.subject, example.headers, example.data, received_at=ARRIVAL)


@pytest.mark.parametrize("id_", [*MESSAGES, *REQUESTS])
def test_has_good_and_bad_examples(id_: str) -> None:
    names = [example.name.partition("-")[0] for example in examples.ALL if example.id == id_]
    assert {"good", "bad"} <= set(names), f"contracts/examples/{id_}/ needs a good-*.json and a bad-*.json"


def test_no_example_is_an_orphan() -> None:
    known = MESSAGES.keys() | REQUESTS.keys()
    assert {example.id for example in examples.ALL} <= known
    files = {path for path in examples.FOLDER.rglob("*") if path.is_file()}
    strays = [path for path in files if not path.name.startswith(("good-", "bad-")) or path.suffix != ".json"]
    assert not strays


@pytest.mark.parametrize("example", _of(MESSAGES, examples.GOOD), ids=str)
def test_good_message_is_taken_by_all(example: Example) -> None:
    message = MESSAGES[example.id]
    event = _decode(example)
    assert isinstance(event, Event), event
    assert example.subject == message.subject(event.key)
    assert _faults(example.id, example.data) == []
    assert faults(schema.header_schema(message), example.headers) == []


@pytest.mark.parametrize("example", _of(MESSAGES, examples.GOOD), ids=str)
def test_good_message_written_again_is_still_good(example: Example) -> None:
    model = MESSAGES[example.id].model
    body = model.model_validate_json(example.data, strict=True)
    again = body.model_dump_json().encode()
    assert _faults(example.id, again) == []
    assert model.model_validate_json(again, strict=True) == body


@pytest.mark.parametrize("example", _of(MESSAGES, examples.GOOD), ids=str)
def test_good_message_parses_with_the_cloudevents_sdk(example: Example) -> None:
    event = _decode(example)
    assert isinstance(event, Event)
    parsed = from_binary(HTTPMessage(example.headers, example.data), JSONFormat())
    assert parsed.get_specversion() == "1.0"
    assert parsed.get_type() == MESSAGES[example.id].type
    assert (parsed.get_id(), parsed.get_source()) == (event.id, event.source)
    assert parsed.get_subject() == event.subject
    assert parsed.get_data() == json.loads(example.data)
    if "ce-time" in example.headers:
        assert parsed.get_time() == event.time
    assert parsed.get_extension("actor") == event.actor
    assert parsed.get_extension("sequence") == (None if event.sequence is None else str(event.sequence))


@pytest.mark.parametrize("example", _of(MESSAGES, examples.GOOD), ids=str)
def test_codec_and_header_schema_ask_for_the_same_headers(example: Example) -> None:
    rules = schema.header_schema(MESSAGES[example.id])
    for name in example.headers:
        without = replace(example, headers={key: value for key, value in example.headers.items() if key != name})
        assert isinstance(_decode(without), Invalid) == bool(faults(rules, without.headers)), name


@pytest.mark.parametrize("example", _of(MESSAGES, examples.BAD), ids=str)
def test_bad_message_is_refused_by_the_codec_for_its_reason(example: Example) -> None:
    refused = _decode(example)
    assert isinstance(refused, Invalid), f"{example.why}: but it was taken"
    assert refused.reason is DeadReason(example.reason), refused.detail
    assert example.why
    leaf = example.at.removeprefix("headers.").rpartition(".")[2]
    assert leaf in refused.detail or not leaf or example.reason.startswith("not_"), refused.detail


@pytest.mark.parametrize("example", [e for e in _of(MESSAGES, examples.BAD) if e.reason == "schema"], ids=str)
def test_bad_body_is_refused_by_model_and_schema_at_its_place(example: Example) -> None:
    assert example.at in _pydantic_places(MESSAGES[example.id].model, example.data)
    places = set[str]().union(*map(_places, _faults(example.id, example.data)))
    assert example.at in places, f"{example.why}: the JSON Schema finds fault at {sorted(places)}"


@pytest.mark.parametrize("example", [e for e in _of(MESSAGES, examples.BAD) if "headers." in e.at], ids=str)
def test_bad_header_is_refused_by_the_header_schema(example: Example) -> None:
    found = faults(schema.header_schema(MESSAGES[example.id]), example.headers)
    places = set[str]().union(*map(_places, found))
    assert example.at.removeprefix("headers.") in places


@pytest.mark.parametrize("example", _of(REQUESTS, examples.GOOD), ids=str)
def test_good_request_and_reply_are_taken(example: Example) -> None:
    request = REQUESTS[example.id]
    assert example.reply is not None, "a request's example shows the reply as well"
    assert example.subject.startswith(request.subject(""))
    request.model.model_validate_json(example.data, strict=True)
    request.reply.model_validate_json(example.reply, strict=True)
    assert _faults(f"{example.id}.request", example.data) == []
    assert _faults(f"{example.id}.reply", example.reply) == []


@pytest.mark.parametrize("example", _of(REQUESTS, examples.BAD), ids=str)
def test_bad_request_or_reply_is_refused_at_its_place(example: Example) -> None:
    request = REQUESTS[example.id]
    assert example.reason == "schema", "a request has no headers of its own: only its body can be bad"
    model, part, data = request.model, "request", example.data
    if example.reply is not None:
        model, part, data = request.reply, "reply", example.reply
    assert example.at in _pydantic_places(model, data)
    assert example.at in set[str]().union(*map(_places, _faults(f"{example.id}.{part}", data)))
