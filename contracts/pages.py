"""AsyncAPI 3 document of each service, derived from the registry: what it receives, sends, answers and asks.

Comes in: the registry. Goes out: one plain dictionary a service, ready to be written as JSON. Payloads are references
to the schema files beside it; what AsyncAPI has no word for (streams, durables) stands under `x-farside`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from contracts import registry
from contracts.base import Model
from contracts.schema import CONTENT_TYPE, PROBLEM_ID, JsonObject, header_schema

ASYNCAPI_VERSION = "3.0.0"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
PARTICIPANTS = (*registry.SERVICES, registry.AGENT)

_PARAMETERS = {
    registry.Key.TENANT: "Name of a tenant, [a-z0-9-]{1,63}; queries also take `_` for all tenants.",
    registry.Key.NODE: "Name of a node, [a-z0-9-]{1,63}.",
    registry.Key.CONSUMER: "Name of the durable that gave up on the message.",
}


@dataclass(frozen=True)
class _Part:
    """One channel with its operations and messages, merged into the document."""

    channels: JsonObject
    operations: JsonObject
    messages: JsonObject


def page(service: str) -> JsonObject:
    """The AsyncAPI document of one service, or of the agent."""
    channels: JsonObject = {}
    operations: JsonObject = {}
    messages: JsonObject = {}
    for part in _parts(service):
        channels.update(part.channels)
        operations.update(part.operations)
        messages.update(part.messages)
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {"title": f"farside {service}", "version": "1.0.0", "license": {"name": "Apache-2.0"}},
        "defaultContentType": CONTENT_TYPE,
        "servers": {"hub": {"host": "127.0.0.1:4222", "protocol": "nats"}},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _parts(service: str) -> Iterator[_Part]:
    for message, consumer in registry.consumed_by(service):
        yield _message_part(message, "receive", _durable_facts(message, consumer))
    for message in registry.MESSAGES:
        if service in message.readers:
            yield _message_part(message, "receive", {"stream": message.stream.name, "ordered": True})
    for message in registry.produced_by(service):
        yield _message_part(message, "send", {"stream": message.stream.name})
    for request in registry.REQUESTS:
        if request.service == service:
            yield _request_part(request, "receive")
        if service in request.callers:
            yield _request_part(request, "send")
    yield _replay_part(service)


def _message_part(message: registry.Message[Model], action: str, facts: JsonObject) -> _Part:
    channel = _channel(message.template, message.key, [message.id])
    operation = _operation(action, message.id, [message.id], facts)
    return _Part({message.id: channel}, {f"{action}.{message.id}": operation}, {message.id: _event(message)})


def _request_part(request: registry.Request[Model, Model], action: str) -> _Part:
    asked, answered, inbox = f"{request.id}.request", f"{request.id}.reply", f"{request.id}.inbox"
    channels: JsonObject = {
        request.id: _channel(request.template, request.key, [asked]),
        inbox: {"address": None, "messages": _component_refs([answered, PROBLEM_ID])},
    }
    operation = _operation(action, request.id, [asked], {"verb": request.verb})
    operation["reply"] = {"channel": _ref("channels", inbox), "messages": _channel_refs(inbox, [answered, PROBLEM_ID])}
    messages: JsonObject = {name: _body(name) for name in (asked, answered, PROBLEM_ID)}
    return _Part(channels, {f"{action}.{request.id}": operation}, messages)


def _replay_part(service: str) -> _Part:
    """The channel by which dead letters come back: each durable of the service has its own subject."""
    consumed = list(registry.consumed_by(service))
    if not consumed:
        return _Part({}, {}, {})
    names = [message.id for message, _ in consumed]
    channel = _channel(registry.replay_subject("{consumer}"), registry.Key.CONSUMER, names)
    facts: JsonObject = {"stream": registry.REPLAYS.name}
    return _Part({"replay.v1": channel}, {"receive.replay.v1": _operation("receive", "replay.v1", names, facts)}, {})


def _durable_facts(message: registry.Message[Model], consumer: registry.Consumer) -> JsonObject:
    return {
        "stream": message.stream.name,
        "durable": registry.durable(message, consumer, "{node}"),
        "batch": consumer.batch,
        "ack_wait_s": float(consumer.ack_wait_s),
    }


def _channel(address: str, key: registry.Key, names: list[str]) -> JsonObject:
    channel: JsonObject = {"address": address, "messages": _component_refs(names)}
    if key is not registry.Key.NONE:
        channel["parameters"] = {key.value: {"description": _PARAMETERS[key]}}
    return channel


def _operation(action: str, channel: str, names: list[str], facts: JsonObject) -> JsonObject:
    refs = _channel_refs(channel, names)
    return {"action": action, "channel": _ref("channels", channel), "messages": refs, "x-farside": facts}


def _event(message: registry.Message[Model]) -> JsonObject:
    return {**_body(message.id), "headers": header_schema(message)}


def _body(id_: str) -> JsonObject:
    payload = {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"../schemas/{id_}.json"}}
    return {"name": id_, "contentType": CONTENT_TYPE, "payload": payload}


def _component_refs(names: list[str]) -> JsonObject:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in names}


def _channel_refs(channel: str, names: list[str]) -> list[JsonObject]:
    return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in names]


def _ref(*path: str) -> JsonObject:
    return {"$ref": "#/" + "/".join(path)}
