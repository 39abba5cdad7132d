"""docs/flows.md: who tells whom what, as one picture (Mermaid) and one table, derived from the registry.

Comes in: the registry, and the names of the example files. Goes out: the page's text. Solid arrows are messages read by
a durable, dotted ones messages read without one, thick ones requests.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from contracts import registry
from contracts.base import Model
from contracts.registry import Message, Request

EXAMPLES = Path(__file__).parent / "examples"
SCHEMAS_LINK = "../contracts/schemas"
EXAMPLES_LINK = "../contracts/examples"
NAMES_SHOWN = 3

SOLID, DOTTED, THICK = "-->", "-.->", "==>"
EVERYBODY = "services"
PEOPLE = (registry.TENANT, registry.OPERATOR)

_HEAD = """\
# Flows

Every message and request of Farside, written from [the registry](../contracts/registry.py) by `just contracts`.

Solid arrows are messages that a durable consumer reads, dotted ones are read without a durable, thick ones are
requests, from who asks to who answers. `jobs.*` stands for all that the sender says in that domain.
"""
_COLUMNS = ("Name", "Kind", "Producer", "Consumers and readers", "Stream", "Subject", "Schema", "Example")


@dataclass(frozen=True)
class _Edge:
    """One arrow before it is drawn: it may carry many names."""

    source: str
    target: str
    arrow: str


def page() -> str:
    """The whole page."""
    rows = [*map(_message_row, registry.MESSAGES), *map(_request_row, registry.REQUESTS)]
    table = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *map(_line, rows)]
    return "\n".join([_HEAD, "```mermaid", *picture(), "```", "", *table, ""])


def picture() -> Iterator[str]:
    """The lines of the flow chart."""
    yield "flowchart LR"
    for person in PEOPLE:
        yield f"  {person}([{person}])"
    yield f"  {registry.AGENT}[[{registry.AGENT}]]"
    yield f"  subgraph {EVERYBODY}"
    for service in registry.SERVICES:
        yield f"    {service}[{service}]"
    yield "  end"
    for edge, label in _edges().items():
        yield f'  {edge.source} {edge.arrow}|"{label}"| {edge.target}'


def _edges() -> dict[_Edge, str]:
    """Every arrow with its label; arrows that say the same to several people are drawn as one."""
    carried: dict[_Edge, list[Message[Model]]] = {}
    for message in registry.MESSAGES:
        for edge in _ways(message):
            carried.setdefault(edge, []).append(message)
    labels = {edge: _messages_label(edge, messages) for edge, messages in carried.items()}
    asked: dict[_Edge, list[Request[Model, Model]]] = {}
    for request in registry.REQUESTS:
        for caller in request.callers:
            asked.setdefault(_Edge(caller, request.service, THICK), []).append(request)
    return _joined(labels | {edge: _requests_label(requests) for edge, requests in asked.items()})


def _ways(message: Message[Model]) -> Iterator[_Edge]:
    for producer in message.producers:
        source = EVERYBODY if producer == registry.EVERY_SERVICE else producer
        for consumer in message.consumers:
            yield _Edge(source, consumer.service, SOLID)
        for reader in message.readers:
            yield _Edge(source, reader, DOTTED)


def _messages_label(edge: _Edge, messages: Iterable[Message[Model]]) -> str:
    """`jobs: submit, cancel` for each domain, or `jobs.*` where the arrow carries all of it."""
    domains: dict[str, list[str]] = {}
    for message in messages:
        domains.setdefault(message.domain, []).append(message.name)
    return "<br/>".join(
        f"{domain}.*" if _is_all(edge.source, domain, names) else f"{domain}: {', '.join(names)}"
        for domain, names in domains.items()
    )


def _is_all(source: str, domain: str, names: list[str]) -> bool:
    """Whether these are all that `source` says in a domain, and too many to name."""
    said = [one.name for one in registry.MESSAGES if one.domain == domain and source in one.producers]
    return len(names) > NAMES_SHOWN and names == said


def _requests_label(requests: Iterable[Request[Model, Model]]) -> str:
    verbs: dict[str, list[str]] = {}
    for request in requests:
        verbs.setdefault(request.verb, []).append(request.name)
    return "<br/>".join(f"{verb}: {', '.join(names)}" for verb, names in verbs.items())


def _joined(labels: dict[_Edge, str]) -> dict[_Edge, str]:
    """Arrows of one source that say the same drawn as one, then those of several sources to the same targets."""
    targets: dict[tuple[str, str, str], list[str]] = {}
    for edge, label in labels.items():
        targets.setdefault((edge.source, edge.arrow, label), []).append(edge.target)
    sources: dict[tuple[str, str, str], list[str]] = {}
    for (source, arrow, label), to in targets.items():
        sources.setdefault((" & ".join(to), arrow, label), []).append(source)
    return {_Edge(" & ".join(by), to, arrow): label for (to, arrow, label), by in sources.items()}


def _message_row(message: Message[Model]) -> list[str]:
    consumers = ", ".join(consumer.service for consumer in message.consumers)
    readers = f"read by {', '.join(message.readers)}" if message.readers else ""
    return [
        f"`{message.id}`",
        message.kind.value,
        ", ".join(_words(producer) for producer in message.producers),
        "; ".join(part for part in (consumers, readers) if part),
        message.stream.name,
        f"`{message.template}`",
        f"[schema]({SCHEMAS_LINK}/{message.id}.json)",
        _example(message.id),
    ]


def _request_row(request: Request[Model, Model]) -> list[str]:
    schemas = (f"[{part}]({SCHEMAS_LINK}/{request.id}.{part}.json)" for part in ("request", "reply"))
    return [
        f"`{request.id}`",
        request.verb,
        ", ".join(request.callers),
        f"answered by {request.service}",
        "none",
        f"`{request.template}`",
        ", ".join(schemas),
        _example(request.id),
    ]


def _words(producer: str) -> str:
    return producer.replace("-", " ")


def _example(id_: str) -> str:
    """A link to the first good example; `none` until there is one, which a test does not let pass."""
    found = sorted(path.name for path in (EXAMPLES / id_).glob("good-*.json"))
    return f"[example]({EXAMPLES_LINK}/{id_}/{found[0]})" if found else "none"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
