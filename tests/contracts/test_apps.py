"""What each service has a handler for is what the registry says it reads and answers.

FastStream's own AsyncAPI document of the real App is the witness: a durable without a handler, a handler without a
row, another subject or another payload shows as a difference.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import pages, registry
from tests.contracts.apps import BUILD, NODE


def _registered(service: str) -> dict[str, tuple[str, str]]:
    """What the registry says, by id: subject and payload."""
    found: dict[str, tuple[str, str]] = {}
    for message, consumer in registry.consumed_by(service):
        payload = message.model.__name__ if consumer.batch == 1 else f"list[{message.model.__name__}]"
        found[message.id] = (message.subject(NODE if consumer.per_node else "*"), payload)
    for request in registry.REQUESTS:
        if request.service == service:
            found[request.id] = (request.subject("*"), request.model.__name__)
    return found


def _described(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """What FastStream says, by channel: subject and payload."""
    for name, channel in document["channels"].items():
        [message] = channel["messages"].values()
        payload = _resolve(document, _resolve(document, message)["payload"])
        assert channel["address"] == channel["bindings"]["nats"]["subject"]
        yield name, (channel["address"], _title(document, payload))


def _resolve(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        here: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            here = here[part]
        node = here
    return node


def _title(document: dict[str, Any], payload: dict[str, Any]) -> str:
    if payload["type"] == "array":
        return f"list[{_title(document, _resolve(document, payload['items']))}]"
    return str(payload["title"])


@pytest.mark.parametrize("service", pages.PARTICIPANTS)
def test_handlers_are_those_of_the_registry(service: str, tmp_path: Path) -> None:
    document = json.loads(BUILD[service](tmp_path).asyncapi())
    assert dict(_described(document)) == _registered(service)


@pytest.mark.parametrize("service", pages.PARTICIPANTS)
def test_our_page_agrees_with_faststreams(service: str, tmp_path: Path) -> None:
    document = json.loads(BUILD[service](tmp_path).asyncapi())
    ours: Any = pages.page(service)["channels"]
    for name, (address, _) in _described(document):
        tokens = zip(address.split("."), ours[name]["address"].split("."), strict=True)
        assert all(theirs == our or (theirs in {"*", NODE} and our[0] in "{_") for theirs, our in tokens), name
