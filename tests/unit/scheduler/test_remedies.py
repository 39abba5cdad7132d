"""What would let a job start, in words: one remedy for each thing that is short."""

from dataclasses import replace

import pytest

from contracts.base import ReasonCode
from contracts.nodes import NodePhase
from services.scheduler import remedies
from services.scheduler.answers import as_if_submitted
from services.scheduler.core.arrays import NEVER, Stay
from services.scheduler.core.words import reason
from services.scheduler.memory.rows import CardRow, NodeRow
from tests.unit.scheduler.builders import GB, NOW, spec
from tests.unit.scheduler.scenes import C, R

JOB = as_if_submitted(spec(resources={"cards": 2, "accelerator": "H100"}), NOW)
CARDS = tuple(CardRow(at, "h100", 80 * GB) for at in range(2))
NODE = NodeRow("c-1", 1, False, C, "z", "", False, True, 8000, 64 * GB, NEVER, NEVER, CARDS)  # noqa: FBT003 - a row


def freed(resource: str, asked: int, allowed: int, *, returns: bool = False, nodes: tuple[NodeRow, ...] = ()) -> str:
    why = reason(ReasonCode.WAITING_FOR_NODES, "", resource, used=0, asked=asked, allowed=allowed)
    return remedies.frees(why, Stay("j", 1, why, returns=returns), JOB, nodes, ())


@pytest.mark.parametrize(
    ("resource", "allowed", "words"),
    [
        ("members_per_rack", 1, "fewer members, `topology` without `required`, or a larger rack"),
        ("cards_per_link", 1, "fewer cards a member, `topology` without `required`, or nodes whose links join more"),
        ("cards", 0, "another `accelerator`, or nodes with such cards"),
        ("cards", 1, "a smaller request, or more nodes that could hold it"),
        ("card_memory_bytes", 1, "a smaller `memory_per_card_bytes` or share, or nodes with larger cards"),
        ("nodes", 0, "a node of such a tier that announces itself"),
    ],
)
def test_where_no_end_of_a_job_helps_none_is_offered(resource: str, allowed: int, words: str) -> None:
    assert freed(resource, 2, allowed) == f"no end of a job would do: it takes {words}"


def test_where_an_end_helps_it_is_offered_beside_nodes_that_would_do() -> None:
    assert freed("cpu_milli", 2, 2) == "an end of a job on nodes that could hold it"
    assert freed("cpu_milli", 2, 2, nodes=(replace(NODE, phase=NodePhase.DRAINING),)) == (
        "an end of a job on nodes that could hold it, or a return of nodes that are not ready: "
        "c-1 is drained: `farside node uncordon c-1` ends it"
    )


@pytest.mark.parametrize("phase", [*NodePhase])
def test_every_state_of_a_node_has_words(phase: NodePhase) -> None:
    node = replace(NODE, phase=phase, cordoned=phase is NodePhase.READY)
    told = freed("cards", 2, 0, returns=True, nodes=(node,))
    assert told.startswith("a return of nodes that are not ready: c-1 ")
    assert told != f"a return of nodes that are not ready: c-1 is {phase}"


def test_a_state_of_a_newer_version_is_told_as_it_is() -> None:
    node = replace(NODE, phase="dreaming")
    assert freed("cards", 2, 0, returns=True, nodes=(node,)).endswith("c-1 is dreaming")


def test_only_nodes_that_could_hold_the_job_are_named_and_of_many_the_first() -> None:
    others = [
        replace(NODE, node="b-1", ready=True),
        replace(NODE, node="b-2", tier=R),
        replace(NODE, node="b-3", cards=CARDS[:1]),
        replace(NODE, node="b-4", cards=(CARDS[0], replace(CARDS[1], bad=True))),
        replace(NODE, node="b-5", cards=tuple(replace(card, model="a100") for card in CARDS)),
    ]
    lost = [replace(NODE, node=f"c-{at}", phase=NodePhase.LOST) for at in range(6)]
    told = freed("cards", 2, 0, returns=True, nodes=(*others, *reversed(lost)))
    assert "b-" not in told
    assert told.count("is lost") == remedies.NAMED
    assert told.endswith("c-3 is lost: it is back when its agent reports; and 2 more")


def test_what_the_plan_knows_beside_its_reason_comes_first() -> None:
    why = reason(ReasonCode.WAITING_FOR_NODES, "", "nodes", used=0, asked=2, allowed=0)
    stay = Stay("j", 1, why, frees="pool big under `pools`")
    assert remedies.frees(why, stay, JOB, (), ()) == "no end of a job would do: it takes pool big under `pools`"
    told = remedies.frees(why, replace(stay, returns=True), JOB, (replace(NODE, phase=NodePhase.LOST),), ())
    assert told.endswith("it is back when its agent reports, or pool big under `pools`")
    kept = reason(ReasonCode.RESERVED, "", "cards", asked=1)
    assert remedies.frees(kept, replace(stay, frees="the start of it"), JOB, (), ()) == "the start of it"
    assert remedies.frees(kept, None, JOB, (), ()) == ""


def test_a_dataset_is_named_in_the_command_that_puts_it() -> None:
    why = reason(ReasonCode.WAITING_FOR_DATASET, "", "dataset")
    told = remedies.frees(why, None, replace(JOB, dataset=("digits", "v1")), (), ())
    assert told == "`farside dataset put FOLDER --name digits --version v1`, or the end of a transfer of it"


def test_quotas_name_the_field_and_the_file() -> None:
    over = reason(ReasonCode.WAITING_FOR_QUOTA, "", "cards", used=1, asked=1, allowed=1)
    own = Stay("j", 1, over)
    assert remedies.frees(over, own, JOB, (), ()) == (
        "an end of a job of the tenant, or a higher `cards` in the file of tenant acme"
    )
    more = reason(ReasonCode.WAITING_FOR_QUOTA, "", "cards", used=0, asked=2, allowed=1)
    assert remedies.frees(more, own, JOB, (), ()).startswith("a smaller request, or a higher `cards`")
    lent = replace(own, cohort="lab")
    assert remedies.frees(over, lent, JOB, (), ("a", "b")).startswith("an end of a job of a, b (cohort lab), or more")
