"""Where jobs land (row S2), in which order, and why the others stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.base import ReasonCode, Tier
from contracts.jobs import JobKind
from services.scheduler.core.placement import Plan, plan
from tests.unit.scheduler.builders import GB, Ask, Node, fleet, queue, tenants

C, R, S = Tier.CENTRAL, Tier.REMOTE, Tier.SHARED


def run(asks: list[Ask], *nodes: Node, node_slots: int = 64, **quotas: int) -> Plan:
    there = fleet(*nodes, node_slots=node_slots)
    return plan(there, queue(there, *asks), tenants(**quotas))


def where(decided: Plan) -> dict[str, list[str]]:
    return {p.job_id: [seat.node for seat in p.seats] for p in decided.placements}


def why(decided: Plan) -> dict[str, str]:
    return {stay.job_id: stay.reason.code for stay in decided.stays}


ONE_OF_EACH = (Node("c", C, ["H100"] * 2), Node("r", R, ["T4"]), Node("s", S, ["A100"] * 2))


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        (JobKind.TRAINING, "c"),
        (JobKind.FINE_TUNING, "c"),
        (JobKind.INFERENCE, "r"),
        (JobKind.BATCH, "r"),
        (JobKind.PREPROCESSING, "r"),
    ],
)
def test_each_kind_on_its_tier(kind: JobKind, node: str) -> None:
    assert where(run([Ask("j", kind)], *ONE_OF_EACH)) == {"j": [node]}


def test_inference_falls_back_to_shared_and_then_to_central() -> None:
    asks = [Ask(f"j{index}", JobKind.INFERENCE, submitted_us=index) for index in range(4)]
    assert [nodes[0] for nodes in where(run(asks, *ONE_OF_EACH)).values()] == ["r", "s", "s", "c"]


def test_batch_falls_back_to_shared_and_never_to_central() -> None:
    asks = [Ask(f"j{index}", JobKind.BATCH, submitted_us=index) for index in range(4)]
    decided = run(asks, *ONE_OF_EACH)
    assert [nodes[0] for nodes in where(decided).values()] == ["r", "s", "s"]
    assert why(decided) == {"j3": ReasonCode.WAITING_FOR_CARDS}


def test_training_is_bound_to_its_accelerator() -> None:
    nodes = (Node("a", C, ["A100"]), Node("b", C, ["H100"]))
    assert where(run([Ask("j", accelerator="h100")], *nodes)) == {"j": ["b"]}


def test_cards_of_one_member_are_of_one_model() -> None:
    decided = run([Ask("j", cards=2)], Node("a", C, ["A100", "H100"]), Node("b", C, ["H100", "H100"]))
    assert where(decided) == {"j": ["b"]}


def test_the_fullest_node_that_fits_is_taken() -> None:
    nodes = (Node("a", C, ["H100"] * 4), Node("b", C, ["H100"] * 4, used=[0, 1]), Node("c", C, ["H100"] * 4, used=[0]))
    assert where(run([Ask("j", cards=2)], *nodes)) == {"j": ["b"]}


def test_a_seat_names_the_free_cards_and_what_they_are() -> None:
    decided = run([Ask("j", cards=2)], Node("a", C, ["H100"] * 4, used=[0, 2]))
    [seat] = decided.placements[0].seats
    assert (seat.cards, seat.accelerator) == ((1, 3), "h100")
    assert seat.card_memory_bytes is not None


def test_small_cards_go_first_when_any_will_do() -> None:
    nodes = (Node("a", C, ["H100"], card_bytes=80 * GB), Node("b", C, ["A100"], card_bytes=40 * GB))
    assert where(run([Ask("j")], *nodes)) == {"j": ["b"]}
    assert where(run([Ask("j", card_bytes=41 * GB)], *nodes)) == {"j": ["a"]}


def test_a_node_that_lost_the_last_attempt_is_taken_only_when_no_other_fits() -> None:
    nodes = (Node("a", C, ["H100"]), Node("b", C, ["H100"] * 4))
    assert where(run([Ask("j")], *nodes)) == {"j": ["a"]}
    assert where(run([Ask("j", avoid=("a", "gone"))], *nodes)) == {"j": ["b"]}
    assert where(run([Ask("j", avoid=("a", "b"))], *nodes)) == {"j": ["a"]}


def test_suspect_and_lost_nodes_get_nothing() -> None:
    decided = run([Ask("j")], Node("a", C, ["H100"], ready=False))
    assert decided.placements == ()
    assert why(decided) == {"j": ReasonCode.WAITING_FOR_NODES}


def test_gangs_are_all_or_nothing() -> None:
    """SC11: two gangs whose members would interleave never hold a part each."""
    nodes = [Node(f"n{index:02}", C, ["H100"]) for index in range(10)]
    decided = run([Ask("a", members=10), Ask("b", members=10, submitted_us=1)], *nodes)
    assert {job: len(at) for job, at in where(decided).items()} == {"a": 10}
    assert why(decided) == {"b": ReasonCode.WAITING_FOR_CARDS}


def test_a_gang_takes_the_fewest_nodes() -> None:
    nodes = (Node("a", C, ["H100"] * 2), Node("b", C, ["H100"] * 4), Node("c", C, ["H100"] * 2))
    assert where(run([Ask("j", members=2, cards=2)], *nodes)) == {"j": ["b", "b"]}
    assert where(run([Ask("j", members=3, cards=2)], *nodes)) == {"j": ["b", "b", "a"]}


def test_a_gang_stays_within_one_tier() -> None:
    decided = run([Ask("j", JobKind.INFERENCE, members=2)], Node("r", R, ["T4"]), Node("s", S, ["T4"]))
    assert decided.placements == ()


def test_free_cards_that_no_node_has_together_are_fragmented() -> None:
    """SC14."""
    decided = run([Ask("j", cards=2)], Node("a", C, ["H100"] * 2, used=[0]), Node("b", C, ["H100"] * 2, used=[1]))
    reason = decided.stays[0].reason
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.FRAGMENTED, 2, 2, 4)


def test_the_reason_names_resource_and_amounts() -> None:
    """SC16."""
    reason = run([Ask("j", cards=2, accelerator="H100")], Node("a", C, ["H100"] * 2, used=[0])).stays[0].reason
    assert reason.message == "asks 2 H100 cards: 1 of 2 are free on central nodes"
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("cards", 1, 2, 2)


def test_a_gang_larger_than_the_ready_fleet_waits_for_nodes() -> None:
    reason = run([Ask("j", members=3, cards=2)], Node("a", C, ["H100"] * 4)).stays[0].reason
    assert (reason.code, reason.resource, reason.asked, reason.allowed) == (
        ReasonCode.WAITING_FOR_NODES,
        "members",
        3,
        2,
    )


def test_processors_and_memory_bind_too() -> None:
    node = Node("a", C, ["H100"] * 4, cpu_milli=3000)
    decided = run([Ask("a", cpu_milli=2000), Ask("b", cpu_milli=2000, submitted_us=1)], node)
    assert where(decided) == {"a": ["a"]}
    reason = decided.stays[0].reason
    assert (reason.resource, reason.used, reason.asked, reason.allowed) == ("cpu_milli", 2000, 2000, 3000)


def test_a_node_takes_a_bounded_number_of_members_however_little_they_ask() -> None:
    """600 members of one thousandth of a processor once met on one node and starved its heartbeats."""
    nodes = [Node(f"r{n}", R, used_slots=n) for n in range(3)]
    decided = run([Ask("j", JobKind.BATCH, cards=0, cpu_milli=1, members=180)], *nodes)
    seats = where(decided)["j"]
    assert [seats.count(node.name) for node in nodes] == [64, 63, 53]
    tiny = [Ask(f"j{n:03}", JobKind.BATCH, cards=0, submitted_us=n) for n in range(70)]
    assert len(run(tiny, Node("r", R)).placements) == 64


@pytest.mark.parametrize(
    ("ask", "nodes", "wanted"),
    [
        (
            Ask("j", JobKind.BATCH, cards=0, cpu_milli=1, members=600),
            (Node("a", R), Node("b", R)),
            (ReasonCode.WAITING_FOR_NODES, 0, 600, 128),
        ),
        (
            Ask("j", JobKind.BATCH, cards=0, members=60),
            (Node("a", R, used_slots=60), Node("b", R, used_slots=30), Node("c", R, ready=False)),
            (ReasonCode.WAITING_FOR_NODES, 90, 60, 128),
        ),
        (
            Ask("j", members=2),
            (Node("a", C, ["H100"] * 2, used_slots=63), Node("b", C, ["H100"], used=[0])),
            (ReasonCode.FRAGMENTED, 63, 2, 128),
        ),
    ],
)
def test_slots_that_bind_are_named(ask: Ask, nodes: tuple[Node, ...], wanted: tuple[ReasonCode, int, int, int]) -> None:
    reason = run([ask], *nodes).stays[0].reason
    assert reason.resource == "slots"
    assert (reason.code, reason.used, reason.asked, reason.allowed) == wanted


def test_a_job_without_cards_needs_only_a_host() -> None:
    decided = run([Ask("j", JobKind.BATCH, cards=0, cpu_milli=1000)], Node("r", R))
    assert decided.placements[0].seats[0].cards == ()


def test_higher_classes_first_and_then_first_come() -> None:
    asks = [
        Ask("late", submitted_us=2),
        Ask("early", submitted_us=1),
        Ask("low", rank=2),
        Ask("high", rank=0, submitted_us=9),
    ]
    assert list(where(run(asks, Node("a", C, ["H100"] * 3)))) == ["high", "early", "late"]


def test_a_blocked_job_does_not_block_others() -> None:
    """SC15, the first half: jobs for other cards pass."""
    asks = [Ask("a", accelerator="A100"), Ask("b", accelerator="H100", submitted_us=1)]
    assert where(run(asks, Node("n", C, ["H100"]))) == {"b": ["n"]}


def test_cards_at_a_time_and_concurrent_jobs_wait_for_quota() -> None:
    asks = [Ask("a", cards=2), Ask("b", cards=2, submitted_us=1)]
    node = Node("n", C, ["H100"] * 8)
    decided = run(asks, node, cards=5, used_cards=2)
    assert where(decided) == {"a": ["n"]}
    reason = decided.stays[0].reason
    assert (reason.code, reason.resource, reason.used, reason.asked, reason.allowed) == (
        ReasonCode.WAITING_FOR_QUOTA,
        "cards",
        4,
        2,
        5,
    )
    assert why(run(asks, node, jobs=3, used_jobs=2)) == {"b": ReasonCode.WAITING_FOR_QUOTA}


def test_a_job_waits_for_its_dataset() -> None:
    decided = run([Ask("j", dataset="digits version v1")], Node("a", C, ["H100"]))
    assert why(decided) == {"j": ReasonCode.WAITING_FOR_DATASET}
    assert "digits version v1" in decided.stays[0].reason.message


def test_an_empty_fleet_and_an_empty_queue() -> None:
    assert why(run([Ask("j"), Ask("k", JobKind.BATCH, cards=0)])) == {
        "j": ReasonCode.WAITING_FOR_NODES,
        "k": ReasonCode.WAITING_FOR_NODES,
    }
    assert run([], Node("a", C, ["H100"])) == Plan((), ())


asks_of = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(JobKind),
        st.integers(0, 4),
        st.integers(1, 3),
        st.sampled_from([None, "A100", "H100", "B900"]),
        st.sampled_from([0, 3000]),
    ),
    max_size=12,
)
nodes_of = st.lists(
    st.tuples(
        st.sampled_from(Tier),
        st.lists(st.sampled_from(["A100", "H100"]), max_size=4),
        st.sets(st.integers(0, 3)),
        st.booleans(),
    ),
    max_size=5,
)


@given(asks_of, nodes_of, st.integers(1, 4), st.data())
def test_no_card_twice_no_node_over_its_slots_each_job_once_and_order_of_input_does_not_matter(
    drawn: list[tuple[int, JobKind, int, int, str | None, int]],
    drawn_nodes: list[tuple[Tier, list[str], set[int], bool]],
    node_slots: int,
    data: st.DataObject,
) -> None:
    asks = [
        Ask(f"j{n:02}", kind, cards=cards, members=members, accelerator=model, submitted_us=at, cpu_milli=cpu)
        for n, (at, kind, cards, members, model, cpu) in enumerate(drawn)
    ]
    nodes = [
        Node(f"n{n}", tier, models, used=sorted(used), ready=ready)
        for n, (tier, models, used, ready) in enumerate(drawn_nodes)
    ]
    decided = run(asks, *nodes, node_slots=node_slots)
    given_cards = [(seat.node, card) for p in decided.placements for seat in p.seats for card in seat.cards]
    assert len(given_cards) == len(set(given_cards))
    by_name = {node.name: node for node in nodes}
    assert all(card not in by_name[node].used and by_name[node].ready for node, card in given_cards)
    seats = [seat.node for p in decided.placements for seat in p.seats]
    assert all(seats.count(node) <= node_slots for node in by_name)
    answered = [p.job_id for p in decided.placements] + [stay.job_id for stay in decided.stays]
    assert sorted(answered) == [ask.name for ask in asks]
    again = run(data.draw(st.permutations(asks)), *nodes, node_slots=node_slots)
    assert (where(again), why(again)) == (where(decided), why(decided))
