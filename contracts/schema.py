"""JSON Schema (2020-12) of every message, request and reply, derived from the pydantic models.

Comes in: rows of the registry. Goes out: plain dictionaries, ready to be written as JSON. A schema carries the
message's type, subject, stream and status under `x-farside`, so a publisher needs this one file and nothing else.
"""

from contracts import registry
from contracts.base import MAX_ATTRIBUTE_CHARS, RFC3339_PATTERN, Model
from contracts.requests import Problem

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SPEC_VERSION = "1.0"
CONTENT_TYPE = "application/json"
PROBLEM_ID = "problem.v1"

JsonObject = dict[str, object]


def body_schema(model: type[Model], id_: str, facts: JsonObject) -> JsonObject:
    """The schema of one body under the id `id_`; `facts` become its `x-farside`."""
    generated: JsonObject = dict(model.model_json_schema(mode="validation"))
    return {"$schema": DIALECT, "$id": f"urn:farside:{id_}", "x-farside": facts, **generated}


def message_schema(message: registry.Message[Model]) -> JsonObject:
    """The schema of a message's body."""
    facts: JsonObject = {
        "type": message.type,
        "kind": message.kind.value,
        "subject": message.template,
        "stream": message.stream.name,
        "status": message.status,
    }
    return body_schema(message.model, message.id, facts)


def request_schemas(request: registry.Request[Model, Model]) -> dict[str, JsonObject]:
    """The schemas of a request and of its reply, by id."""
    facts: JsonObject = {"verb": request.verb, "subject": request.template, "status": request.status}
    asked, answered = f"{request.id}.request", f"{request.id}.reply"
    return {asked: body_schema(request.model, asked, facts), answered: body_schema(request.reply, answered, facts)}


def header_schema(message: registry.Message[Model]) -> JsonObject:
    """The schema of a message's NATS headers: CloudEvents 1.0 in binary mode, one `ce-` header per attribute."""
    text: JsonObject = {"type": "string", "minLength": 1, "maxLength": MAX_ATTRIBUTE_CHARS}
    properties: JsonObject = {
        "content-type": {"const": CONTENT_TYPE},
        "ce-datacontenttype": {"const": CONTENT_TYPE},
        "ce-specversion": {"const": SPEC_VERSION},
        "ce-type": {"const": message.type},
        "ce-id": text,
        "ce-source": text,
        "ce-time": {"type": "string", "pattern": RFC3339_PATTERN},
        "ce-subject": text,
        "ce-sequence": {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "ce-actor": text,
        "ce-incarnation": text,
        "ce-traceparent": text,
    }
    return {"type": "object", "properties": properties, "required": list(required_headers(message))}


def required_headers(message: registry.Message[Model]) -> tuple[str, ...]:
    """The headers without which a message is refused: an event also tells its time, aggregate, version and cause."""
    always = ("ce-specversion", "ce-type", "ce-id", "ce-source")
    if message.kind is registry.Kind.COMMAND:
        return always
    return (*always, "ce-time", "ce-subject", "ce-sequence", "ce-actor")


def all_schemas() -> dict[str, JsonObject]:
    """Every schema file's content by its id."""
    found = {message.id: message_schema(message) for message in registry.MESSAGES}
    for request in registry.REQUESTS:
        found.update(request_schemas(request))
    found[PROBLEM_ID] = body_schema(Problem, PROBLEM_ID, {"header": "farside-problem", "status": "stable"})
    return found
