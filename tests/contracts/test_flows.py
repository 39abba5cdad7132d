"""docs/flows.md tells the whole registry: a row for each message and request, links that hold, and the picture."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts import flows, registry
from contracts.base import Model

DOCS = Path(flows.__file__).parents[1] / "docs"
PAGE = flows.page()
COLUMNS = 8

_NODE = re.compile(r"^ +(?P<id>[a-z]+)(\(\[[a-z]+\]\)|\[\[[a-z]+\]\]|\[[a-z]+\])$")
_EDGE = re.compile(
    r'^ +(?P<sources>[a-z]+( & [a-z]+)*) (?P<arrow>-->|-\.->|==>)\|"(?P<label>[a-z_:,.* ]+(<br/>[a-z_:,.* ]+)*)"\|'
    r" (?P<targets>[a-z]+( & [a-z]+)*)$"
)


def _rows() -> dict[str, list[str]]:
    """The table by name."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == COLUMNS for row in cells)
    assert len({row[0] for row in cells}) == len(cells)
    return {row[0].strip("`"): row for row in cells}


ROWS = _rows()


def _edges() -> Iterator[tuple[str, str, str, str]]:
    """Every arrow of the picture: from, to, arrow, label. Lines that are none of Mermaid's fail."""
    lines = [*flows.picture()]
    assert lines[0] == "flowchart LR"
    known = {match["id"] for line in lines if (match := _NODE.fullmatch(line))} | {flows.EVERYBODY}
    for line in lines[1:]:
        match = _EDGE.fullmatch(line)
        if match is None:
            assert _NODE.fullmatch(line) or line in {f"  subgraph {flows.EVERYBODY}", "  end"}, line
            continue
        for source in match["sources"].split(" & "):
            for target in match["targets"].split(" & "):
                assert {source, target} <= known, line
                yield source, target, match["arrow"], match["label"]


EDGES = [*_edges()]


def _drawn(source: str, target: str, arrow: str, domain: str, name: str) -> bool:
    """Whether an arrow carries a name, or the whole of its domain."""
    labels = [part for one in EDGES if one[:3] == (source, target, arrow) for part in one[3].split("<br/>")]
    for label in labels:
        head, _, names = label.partition(": ")
        if label == f"{domain}.*" or (head == domain and name in names.split(", ")):
            return True
    return False


@pytest.mark.parametrize("message", registry.MESSAGES, ids=lambda message: message.id)
def test_a_message_has_its_row_and_its_arrows(message: registry.Message[Model]) -> None:
    row = ROWS[message.id]
    assert (row[1], row[4], row[5]) == (message.kind.value, message.stream.name, f"`{message.template}`")
    for consumer in message.consumers:
        assert consumer.service in row[3].partition("read by")[0]
    for reader in message.readers:
        assert reader in row[3].partition("read by")[2]
    for producer in message.producers:
        assert producer.replace("-", " ") in row[2]
        source = flows.EVERYBODY if producer == registry.EVERY_SERVICE else producer
        for consumer in message.consumers:
            assert _drawn(source, consumer.service, flows.SOLID, message.domain, message.name)
        for reader in message.readers:
            assert _drawn(source, reader, flows.DOTTED, message.domain, message.name)


@pytest.mark.parametrize("request_", registry.REQUESTS, ids=lambda request: request.id)
def test_a_request_has_its_row_and_its_arrows(request_: registry.Request[Model, Model]) -> None:
    row = ROWS[request_.id]
    assert (row[1], row[3], row[5]) == (request_.verb, f"answered by {request_.service}", f"`{request_.template}`")
    for caller in request_.callers:
        assert caller in row[2]
        assert _drawn(caller, request_.service, flows.THICK, request_.verb, request_.name)


def test_there_are_no_other_rows() -> None:
    assert [*ROWS] == [row.id for row in (*registry.MESSAGES, *registry.REQUESTS)]


@pytest.mark.parametrize("id_", ROWS)
def test_every_link_leads_somewhere(id_: str) -> None:
    links = re.findall(r"\]\(([^)]+)\)", " ".join(ROWS[id_]))
    assert len(links) == (3 if id_.startswith(("query.", "call.")) else 2), "each row has its schemas and an example"
    assert [link for link in links if not (DOCS / link).is_file()] == []
    assert links[-1].startswith(f"{flows.EXAMPLES_LINK}/{id_}/good-")


@pytest.mark.parametrize("edge", EDGES, ids=str)
def test_an_arrow_carries_nothing_that_its_target_does_not_read(edge: tuple[str, str, str, str]) -> None:
    source, target, arrow, label = edge
    if arrow == flows.THICK:
        rows = [(one.verb, one.name) for one in registry.REQUESTS if source in one.callers and one.service == target]
    else:
        rows = [(one.domain, one.name) for one in registry.MESSAGES if _reads(one, source, target, arrow)]
    for part in label.split("<br/>"):
        domain, _, names = part.partition(": ")
        domain = domain.removesuffix(".*")
        said = [one.name for one in registry.MESSAGES if one.domain == domain and source in one.producers]
        assert {(domain, name) for name in (names.split(", ") if names else said)} <= {*rows}


def _reads(message: registry.Message[Model], source: str, target: str, arrow: str) -> bool:
    by = registry.EVERY_SERVICE if source == flows.EVERYBODY else source
    readers = message.readers if arrow == flows.DOTTED else [one.service for one in message.consumers]
    return by in message.producers and target in readers
