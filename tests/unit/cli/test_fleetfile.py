"""Fleets as files: three forms are read, a mistake is named by line and field, what is written is read again."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import Tier
from contracts.fleet import DeclaredLink, DeclaredNode
from contracts.nodes import LinkKind, MonthlyCost
from libs.cli import fleetfile
from libs.cli.errors import USAGE, CliError
from tests.data import public_data

HEAD = "sn,cpu_milli,memory_mib,gpu,model"
OWN = "node,cpu_milli,memory_bytes,cards,card_model"
FULL = DeclaredNode(
    node="a-1",
    tier=Tier.REMOTE,
    zone="coast",
    rack="r7",
    cpu_milli=64_000,
    memory_bytes=2**38,
    cards=8,
    card_model="H100, 80 GB",
    card_memory_bytes=80 * 2**30,
    generation="hopper",
    card_link=DeclaredLink(kind=LinkKind.NVLINK, nominal_mbps=7_200_000),
    node_link=DeclaredLink(kind=LinkKind.RADIO, effective_mbps=90),
    cost=MonthlyCost(currency="cny", power_micro=1, depreciation_micro=2),
    power_limit_w=900,
)


def read(tmp_path: Path, text: str, **options: bool) -> list[DeclaredNode]:
    file = tmp_path / "fleet"
    file.write_text(text)
    return fleetfile.read(file, **options)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(CliError) as refused:
        read(tmp_path, text)
    assert refused.value.exit_code == USAGE
    return str(refused.value).removeprefix(f"{tmp_path}/fleet")


def test_the_openb_form_is_read(tmp_path: Path) -> None:
    [node] = read(tmp_path, f"{HEAD}\nopenb-node-0000,64000,262144,2,P100\n")
    assert (node.node, node.cpu_milli, node.memory_bytes, node.cards, node.card_model) == (
        "openb-node-0000",
        64_000,
        2**38,
        2,
        "P100",
    )


def test_the_published_openb_list_is_read_whole() -> None:
    folder = public_data("openb")
    nodes = fleetfile.read(folder / "openb_node_list_gpu_node.csv")
    assert (len(nodes), sum(node.cards for node in nodes)) == (1213, 6212)
    everything = fleetfile.read(folder / "openb_node_list_all_node.csv", without_cards=True)
    assert len(everything) == 1523


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEAD}\n", " holds no node: write at least one"),
        ("", " holds no node: write at least one"),
        (
            f"{HEAD}\na,1,1,1,T4\n\nb,1,1,x,T4\n",
            ", line 4, field gpu is 'x': a whole number from 0, of at most 15 digits",
        ),
        (f"{HEAD}\na,1,1,-1,T4\n", ", line 2, field gpu is '-1': a whole number from 0, of at most 15 digits"),
        (f"{HEAD}\na,{'9' * 400},1,1,T4\n", ", line 2, field cpu_milli is '999"),
        (f"{HEAD}\na,1,1,1,\n", ", line 2, field model is empty: 1 cards have a model"),
        (f"{HEAD}\na,1,1,1\n", ", line 2: 4 fields, the header names 5"),
        (
            f"{HEAD}\na,1,1,0,\n",
            ", line 2, field gpu is 0: node a has nothing to lease; leave the row out, or give --without-cards",
        ),
        (
            f"{HEAD}\na,1,1,1,T4\nb,1,1,1,T4\na,1,1,1,T4\n",
            ", line 4, field node is 'a': line 2 has it already; name each once",
        ),
        (f"{HEAD}\nNode 1,1,1,1,T4\n", ", line 2, field sn is 'Node 1': a node's name matches [a-z0-9-]{1,63}"),
        (f"{OWN},cards\n", ", line 1, field cards stands there 2 times: name each column once"),
        ("node,cpu_milli,cards\n", ", line 1, field memory_bytes is missing: every node states"),
        (f"{OWN},colour\n", ", line 1, field 'colour' is no column"),
        (f"{OWN}\na,1,1,two,T4\n", ', line 2, field cards is "two"; expected a whole number from 0 to 1024'),
        (
            f"{OWN},tier\na,1,1,1,T4,remot\n",
            ', line 2, field tier is "remot"; expected one of central, remote, shared, did you',
        ),
        (f"{OWN},card_link.kind\na,1,1,1,T4,nvlik\n", ', line 2, field card_link.kind is "nvlik"; expected one of'),
        (f"{OWN},zon\n", ", line 1, field 'zon' is no column, did you mean 'zone'?"),
        (
            '{"nodes": [{"node": "a", "card_link": {"kin": "nvlink"}}]}',
            ", nodes[0], field 'card_link.kin' is none of a node, did you mean 'kind'?",
        ),
        (f"{OWN}\na,,1,1,T4\n", ", line 2, field cpu_milli is missing: state a whole number from 0"),
        (f'{OWN}\na,1,1,1,"T4\n', ", line 2: unexpected end of data"),
        ('{"nodes": 1}', ', field nodes is missing: write {"nodes": [...]}'),
        ('{"nodes": [1]}', ", nodes[0] is 1: a node is an object"),
        ('{"nodes": [{"node": "a", "colour": 1}]}', ", nodes[0], field 'colour' is none of a node"),
        (
            '{"nodes": [{"node": "a", "cpu_milli": 1, "memory_bytes": 1}]}',
            ", nodes[0], field cards is missing: state a whole number from 0 to 1024",
        ),
        ('{"nodes": ', " is no JSON"),
    ],
)
def test_a_mistake_is_named_by_line_and_field(tmp_path: Path, text: str, words: str) -> None:
    assert refusal(tmp_path, text).startswith(words)


def test_all_mistakes_of_a_file_are_told(tmp_path: Path) -> None:
    said = refusal(tmp_path, f"{HEAD}\na,1,1,0,\nb,1,1,1,T4\nb,1,1,x,T4\nb,1,1,1,T4\nc,1\n").splitlines()
    assert [line.removeprefix(f"{tmp_path}/fleet") for line in said] == [
        ", line 2, field gpu is 0: node a has nothing to lease; leave the row out, or give --without-cards",
        ", line 4, field gpu is 'x': a whole number from 0, of at most 15 digits",
        ", line 5, field node is 'b': line 3 has it already; name each once",
        ", line 6: 2 fields, the header names 5",
    ]
    many = refusal(tmp_path, "\n".join([HEAD, *(f"n{number},1,1,0," for number in range(60))])).splitlines()
    assert (len(many), many[-1]) == (51, "and 10 more mistakes")


def test_a_currency_may_be_written_as_tables_show_it(tmp_path: Path) -> None:
    [node] = read(tmp_path, f"{OWN},cost.currency,cost.power_micro\na,1,1,1,T4,EUR,5\n")
    assert node.cost == MonthlyCost(currency="eur", power_micro=5)
    [same] = read(tmp_path, fleetfile.as_json([(node, {})]).replace("eur", "Eur"))
    assert same == node


def test_nodes_without_cards_are_taken_where_they_are_wanted(tmp_path: Path) -> None:
    [node] = read(tmp_path, f"{HEAD}\na,1,1,0,\n", without_cards=True)
    assert (node.cards, node.card_model) == (0, None)


def test_what_is_written_is_read_again_without_what_is_seen(tmp_path: Path) -> None:
    seen: dict[str, object] = {"state": "ready", "grade": "A", "utilisation_pct": 71}
    for text in (fleetfile.as_csv([(FULL, seen)]), fleetfile.as_json([(FULL, seen)])):
        assert read(tmp_path, text) == [FULL]
    assert json.loads(fleetfile.as_json([(FULL, seen)]))["nodes"][0]["state"] == "ready"


@given(st.lists(st.lists(st.text(alphabet='a1,"\n .-', max_size=6), max_size=6), max_size=6))
def test_whatever_a_file_holds_it_is_read_or_refused_in_words(rows: list[list[str]]) -> None:
    path: Any = _Text("\n".join([HEAD, *(",".join(row) for row in rows)]))
    with contextlib.suppress(CliError):
        assert all(node.cards > 0 and node.card_model for node in fleetfile.read(path))


class _Text:
    """A file that is only its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, encoding: str) -> str:
        assert encoding == "utf-8-sig"
        return self._text
