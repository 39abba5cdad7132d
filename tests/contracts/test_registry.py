"""The registry is one language: names are unique, every stream and message has its use, every key its meaning."""

import re
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

from contracts import registry, schema
from contracts.base import NAME_PATTERN, Model, ReasonCode
from contracts.registry import Consumer, Key, Kind, Message

ROOT = Path(__file__).parents[2]
PAST = re.compile(
    r"(ed|en|lost|hung|progressed|placed|saved|held|rolled_up)$|ing$|^(heartbeat|tick|ready|unreachable|suspect)$"
)
KNOWN = {*registry.SERVICES, registry.AGENT, registry.TENANT, registry.OPERATOR, registry.EVERY_SERVICE}
SPECIAL = {registry.REPLAYS, registry.ADVISORIES}

messages = pytest.mark.parametrize("message", registry.MESSAGES, ids=lambda message: message.id)


def _twice(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_names_are_unique() -> None:
    assert _twice([message.id for message in registry.MESSAGES] + [request.id for request in registry.REQUESTS]) == []
    assert _twice([row.template for row in (*registry.MESSAGES, *registry.REQUESTS)]) == []
    assert _twice([stream.name for stream in registry.STREAMS]) == []


def test_every_row_of_the_module_is_in_a_table() -> None:
    rows = vars(registry).values()
    assert {row.name for row in rows if isinstance(row, registry.Stream)} == {s.name for s in registry.STREAMS}
    requests = {row.id for row in rows if isinstance(row, registry.Request)}
    assert requests <= {request.id for request in registry.REQUESTS}


def test_every_stream_carries_something() -> None:
    used = {message.stream for message in registry.MESSAGES} | SPECIAL
    assert set(registry.STREAMS) == used


def test_durables_are_unique_and_short_enough() -> None:
    names = [
        registry.durable(message, consumer, "n" * 63) for message in registry.MESSAGES for consumer in message.consumers
    ]
    assert _twice(names) == []
    assert all(len(name) <= 200 and re.fullmatch(r"[a-z0-9_-]+", name) for name in names)


def test_a_durable_can_be_the_key_of_its_dead_letters() -> None:
    names = [
        registry.durable(message, consumer, "node") for message in registry.MESSAGES for consumer in message.consumers
    ]
    assert [name for name in names if not re.fullmatch(NAME_PATTERN, name)] == []


@messages
def test_message_has_a_known_owner_and_a_reader(message: Message[Model]) -> None:
    readers = {consumer.service for consumer in message.consumers} | set(message.readers)
    assert message.producers
    assert {*message.producers, *readers} <= KNOWN
    assert readers, f"nobody reads {message.id}"
    if message.kind is Kind.COMMAND:
        assert len(message.consumers) == 1, "a command has one consumer: its stream is a work queue"
        assert message.stream.retention == "workqueue"
        assert message.stream.name == f"{message.domain.upper()}_CMD"
    else:
        assert message.stream.retention == "limits"
        assert PAST.search(message.name), "an event is told in past tense"


@messages
def test_outsiders_cannot_use_up_ids(message: Message[Model]) -> None:
    if registry.TENANT in message.producers:
        assert message.stream.dedup_s <= 0.1, "where tenants publish, the inbox is the truth and not the dedup window"


@messages
def test_key_of_the_subject_is_named_in_the_body_of_what_speaks_for_itself(message: Message[Model]) -> None:
    fields = set(message.model.model_fields)
    if message.key is Key.NODE and registry.AGENT in message.producers:
        assert fields & {"node", "facts"}
    if message.key is Key.TENANT and message.kind is Kind.EVENT:
        assert "tenant" in fields


def test_services_of_the_registry_are_the_folders() -> None:
    folders = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    assert folders == {*registry.SERVICES, registry.AGENT}


def test_lookup_by_type_finds_each() -> None:
    assert all(registry.by_type(message.type) is message for message in registry.MESSAGES)
    assert registry.by_type("io.farside.jobs.vanished.v1") is None


def test_templates_name_their_key() -> None:
    assert registry.JOBS_SUBMIT.template == "jobs.v1.submit.{tenant}"
    assert registry.NODES_TICK.template == "nodes.v1.tick._"
    assert registry.CALL_CLAIM.template == "call.v1.scheduler.claim.{node}"


def test_a_durable_is_named_after_service_and_message() -> None:
    per_node = Consumer(registry.AGENT, per_node=True)
    assert registry.durable(registry.JOBS_SUBMIT, Consumer(registry.SCHEDULER)) == "scheduler-jobs-submit"
    assert registry.durable(registry.USAGE_ROLLED_UP, Consumer(registry.BILLING)) == "billing-usage-rolled-up"
    assert registry.durable(registry.WORK_RUN, per_node, "central-1") == "agent-work-run-central-1"


def _words(node: object) -> list[object]:
    """Every open vocabulary below `node` of a schema."""
    if isinstance(node, list):
        return [found for inner in cast("list[object]", node) for found in _words(inner)]
    if not isinstance(node, dict):
        return []
    content = cast("dict[str, object]", node)
    own = cast("dict[str, object]", content.get("x-farside", {})).get("words")
    return [*([] if own is None else [own]), *(found for inner in content.values() for found in _words(inner))]


def test_what_is_asked_for_is_said_in_closed_words() -> None:
    commands = [schema.message_schema(message) for message in registry.MESSAGES if message.kind is Kind.COMMAND]
    requests = [schema.request_schemas(request)[f"{request.id}.request"] for request in registry.REQUESTS]
    assert [document["$id"] for document in [*commands, *requests] if _words(document)] == []
    assert _words(schema.message_schema(registry.JOBS_REJECTED)) == [[code.value for code in ReasonCode]]
