"""Work that moves for a gang has its new place kept until it is there."""

from contracts.base import ReasonCode
from tests.unit.scheduler.scenes import Node, Run, Tenant, World, job, kept, victims, where, why
from tests.unit.scheduler.town import Town

H2 = ("H100",) * 2
TWO = (Tenant("acme"), Tenant("other"))
NODES = (Node("a", H2), Node("b", H2))
STAYS = Run("stays", [("a", (0,))], ends_s=10_000, rank=1)
MOVES = Run("moves", [("b", (0,))], ends_s=10_000, rank=1, saved_s=-9)
LEAVING = Run("moves", [("b", (0,))], rank=1, stopping=True, leaving_for="gang", moving=True)
GANG = job("gang", 2)
TAKER = job("taker", 1, rank=0, at=1, longest_s=None, tenant="other")


def test_the_new_place_is_kept_while_the_work_leaves() -> None:
    plan = World(NODES, [GANG, TAKER], [STAYS, LEAVING], TWO).decided()
    assert (where(plan), victims(plan), kept(plan)) == ({}, {}, {"gang": ["b"]})
    assert why(plan) == {"gang": ReasonCode.WAITING_FOR_PREEMPTION, "taker": ReasonCode.RESERVED}


def test_no_place_is_kept_for_who_left_by_a_right() -> None:
    left = Run("moves", [("b", (0,))], rank=2, stopping=True, leaving_for="gang")
    assert where(World(NODES, [GANG, TAKER], [STAYS, left], TWO).decided()) == {"taker": ["a"]}


def test_who_moved_goes_there_right_behind_the_gang() -> None:
    moved = job("moves", 1, rank=1, damaged=True, left_for="gang")
    plan = World(NODES, [TAKER, moved, GANG], [STAYS], TWO).decided()
    assert where(plan) == {"gang": ["b"], "moves": ["a"]}
    assert list(where(plan)) == ["gang", "moves"]


def test_who_leaves_first_goes_ahead_while_the_gang_waits_for_the_others() -> None:
    nodes = [Node("a", ("H100",) * 3), Node("b", ("H100",) * 3)]
    late = Run("late", [("b", (1,))], rank=1, stopping=True, leaving_for="gang", moving=True)
    first = job("moves", 1, rank=1, damaged=True, left_for="gang")
    plan = World(nodes, [TAKER, first, job("gang", 3)], [STAYS, late], TWO).decided()
    assert (where(plan), why(plan)["taker"]) == ({"moves": ["a"]}, ReasonCode.RESERVED)


def test_a_move_is_never_for_nothing_though_others_come_all_the_time() -> None:
    town = Town.of(World(NODES, [], [STAYS, MOVES], TWO))
    town.submit(GANG)
    assert victims(town.step()) == {"moves": "consolidation"}
    town.submit(job("taker0", 1, rank=0, longest_s=None, tenant="other"))
    assert where(town.step()) == {}
    town.submit(job("taker1", 1, rank=0, longest_s=None, tenant="other"))
    assert where(town.step()) == {"gang": ["b"], "moves": ["a"]}


def test_the_gang_may_count_on_others_that_leave_besides_those_that_move() -> None:
    nodes = [Node("a", H2), Node("b", ("H100",) * 3)]
    spare = Run("spare", [("b", (1,))], rank=2, stopping=True)
    plan = World(nodes, [job("gang", 3), TAKER], [STAYS, LEAVING, spare], TWO).decided()
    assert (where(plan), kept(plan)) == ({}, {"gang": ["b"]})
