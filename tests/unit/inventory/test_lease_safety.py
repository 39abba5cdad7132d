"""The promise of the lease: whatever goes wrong, a node is never lost before its attempts have ended.

And the other side of it: a silent node is found, and inventory's own absence is nobody's silence.
"""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.nodes import NodePhase
from tests.unit.inventory.world import NAMES, TIMINGS, World

Step = Callable[[World], None]

NAME = st.sampled_from(NAMES)
SHORT_MS = st.integers(0, 3)


@st.composite
def sends(draw: st.DrawFn) -> Step:
    name, delay_ms = draw(NAME), draw(SHORT_MS)
    valid, acked = draw(st.booleans()), draw(st.booleans())
    return lambda world: world.send(name, delay_ms=delay_ms, valid=valid, acked=acked)


@st.composite
def ticks(draw: st.DrawFn) -> Step:
    out_ms, back_ms, commit = draw(SHORT_MS), draw(st.integers(0, 30)), draw(st.integers(0, 9)) > 0
    during = tuple(draw(st.lists(NAME, max_size=2)))
    return lambda world: world.tick(out_ms=out_ms, back_ms=back_ms, during=during, commit=commit)


@st.composite
def runs(draw: st.DrawFn) -> Step:
    """Some rounds of inventory in good order while `alive` send heartbeats."""
    rounds, pace_ms, alive = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.sets(NAME))
    return lambda world: run(world, rounds, pace_ms=pace_ms, alive=sorted(alive))


@st.composite
def faults(draw: st.DrawFn) -> Step:
    ms = draw(st.integers(0, 60))
    jump_ms = draw(st.integers(-60, 60))

    def restart_hub(world: World) -> None:
        world.hub.up = False
        world.wait(ms)
        world.hub.restart()

    def cut_hub(world: World) -> None:
        world.hub.up = False

    def join_hub(world: World) -> None:
        world.hub.up = True

    def step_hub_clock(world: World) -> None:
        world.hub.step_ms += jump_ms

    def restart_inventory(world: World) -> None:
        world.wait(ms)
        world.restart_inventory()

    def freeze(world: World) -> None:
        world.wait(ms)

    return draw(st.sampled_from([restart_hub, cut_hub, join_hub, step_hub_clock, restart_inventory, freeze]))


def run(world: World, rounds: int, *, pace_ms: int, alive: list[str]) -> None:
    for _ in range(rounds):
        for name in alive:
            world.send(name)
        world.wait(pace_ms)
        world.tick()


@settings(max_examples=600, deadline=None)
@given(st.lists(st.one_of(runs(), sends(), ticks(), faults()), max_size=40))
def test_no_node_is_lost_while_a_lease_runs(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        step(world)


@given(st.lists(faults(), max_size=5))
def test_silent_node_is_lost_after_any_trouble(steps: list[Step]) -> None:
    world = World()
    run(world, 3, pace_ms=1, alive=list(NAMES))
    for step in steps:
        step(world)
    world.hub.up = True
    run(world, TIMINGS.lost_ms + 3, pace_ms=1, alive=["a", "b"])
    assert world.nodes["c"].phase is NodePhase.LOST
    assert world.losses == ["c"]


@given(st.lists(faults(), min_size=1, max_size=5))
def test_trouble_of_hub_or_inventory_makes_no_living_node_suspect(steps: list[Step]) -> None:
    world = World()
    run(world, 3, pace_ms=1, alive=list(NAMES))
    for step in steps:
        step(world)
        world.hub.up = True
        world.tick()  # inventory is back before the agents are
        run(world, 2, pace_ms=1, alive=list(NAMES))
        assert {node.phase for node in world.nodes.values()} == {NodePhase.READY}


def test_restarts_of_inventory_do_not_forget_a_silent_node() -> None:
    world = World()
    run(world, 3, pace_ms=1, alive=list(NAMES))
    for _ in range(8):
        run(world, 4, pace_ms=1, alive=["a", "b"])
        world.wait(500)
        world.restart_inventory()
    assert world.losses == ["c"]


def test_outage_of_the_hub_alone_loses_nobody() -> None:
    world = World()
    run(world, 3, pace_ms=1, alive=list(NAMES))
    for _ in range(50):
        world.hub.up = False
        run(world, 40, pace_ms=1, alive=list(NAMES))
        world.hub.restart()
        run(world, 1, pace_ms=1, alive=list(NAMES))
    assert world.losses == []


def nearly_lost() -> World:
    """`c` has been silent for nearly `lost_ms` of observed time, and now its heartbeat is acknowledged at last."""
    world = World()
    run(world, 3, pace_ms=1, alive=list(NAMES))
    run(world, TIMINGS.lease_ms - 2, pace_ms=1, alive=["a", "b"])
    world.send("c")
    return world


def test_heartbeat_that_went_with_its_stream_still_counts() -> None:
    world = nearly_lost()
    world.hub.restart()
    run(world, TIMINGS.lost_ms - 3, pace_ms=1, alive=["a", "b"])
    assert world.losses == []


def test_heartbeat_replaced_by_one_behind_the_tick_still_counts() -> None:
    world = nearly_lost()
    world.tick(during=("c",))
    run(world, TIMINGS.lost_ms - 3, pace_ms=1, alive=["a", "b"])
    assert world.losses == []


def test_heartbeat_read_in_a_round_that_was_not_committed_still_counts() -> None:
    world = nearly_lost()
    world.tick(commit=False)
    run(world, TIMINGS.lost_ms - 3, pace_ms=1, alive=["a", "b"])
    assert world.losses == []
