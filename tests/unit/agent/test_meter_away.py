"""The meter when agent or machine were away, stopped or asleep: never more than was held."""

import pytest

from services.agent.core.model import (
    NeverStarted,
    TaskSeen,
)
from tests.unit.agent.metered import GO, GO_ANEW, Node, held_ms, job, keeps


async def test_a_machine_that_went_down_leaves_a_gap(node: Node) -> None:
    gone, waiting, machine = job(1, 0), job(2, 1), node.machine
    await node.run_task(gone)
    await node.prepare(waiting)
    await node.awake(90)
    await node.look(gone, waiting)
    await node.awake(25)
    machine.reboots(off_s=600)
    node.agent()
    await node.look(waiting)
    await node.awake(10)
    await node.end(gone, unseen=True)
    measured = 60_000 - 20_123
    assert held_ms(await node.rows(gone)) == measured
    await node.look(waiting)
    assert held_ms(await node.rows(waiting)) == measured, "its lease is over"
    await node.apply(waiting, GO_ANEW, TaskSeen(machine.now()))
    machine.passes(10)
    await node.end(waiting)
    assert held_ms(await node.rows(waiting)) == measured + 10_000


@pytest.mark.parametrize("looked", [False, True])
async def test_nothing_is_held_past_the_lease_whoever_was_away(node: Node, looked: bool) -> None:  # noqa: FBT001 - a parameter
    """The machine sleeps: its shims end their tasks when it wakes, and the lease is renewed before anybody looks."""
    running, waiting, keeping, machine = job(1, 0), job(2, 1), keeps(job(3, 1)), node.machine
    machine.leases[1] = machine.boot_s + 40
    await node.run_task(running)
    await node.prepare(waiting)
    await node.run_task(keeping)
    await node.awake(30)
    machine.passes(300)
    machine.leases[2] = machine.boot_s + 40
    if looked:
        await node.look(running, waiting, keeping)
    await node.end(running)
    await node.stop(waiting)
    await node.end(keeping)
    while await node.look():
        pass
    assert held_ms(await node.rows(running)) == 40_000
    assert held_ms(await node.rows(waiting)) == 0, "short by less than a window"
    assert held_ms(await node.rows(keeping)) == 330_000


async def test_what_is_said_of_an_unknown_lease_is_all(node: Node) -> None:
    run, machine = job(1, 0), node.machine
    await node.run_task(run)
    await node.awake(50)
    await node.look(run)
    machine.leases.clear()
    machine.passes(600)
    await node.look(run)
    await node.end(run)
    assert held_ms(await node.rows(run)) == 60_000 - 20_123


@pytest.mark.parametrize("killed", [False, True])
async def test_before_the_start_only_the_time_of_an_agent_that_is_awake_is_held(node: Node, killed: bool) -> None:  # noqa: FBT001 - a parameter
    stopped, started, spawned, machine = job(1, 0), job(2, 1), job(3, 0, 1), node.machine
    for run in (stopped, started):
        await node.prepare(run)
    await node.prepare(spawned)
    await node.apply(spawned, GO)
    await node.awake(50)
    await node.look(stopped, started)
    machine.passes(30)
    if killed:
        node.agent()
    await node.look()
    await node.awake(2)
    await node.apply(started, GO, TaskSeen(machine.now()))
    await node.awake(3)
    await node.stop(stopped)
    await node.apply(spawned, NeverStarted("no shim"))
    machine.passes(20)
    await node.end(started)
    while await node.look():
        pass
    told = 60_000 - 20_123
    assert held_ms(await node.rows(stopped)) == told + 5000
    assert held_ms(await node.rows(started)) == told + 25_000
    assert held_ms(await node.rows(spawned)) == 2 * 5000


async def test_what_ended_while_its_agent_stood_still_ends_then(node: Node) -> None:
    run, drained, machine = job(1, 0), job(2, 1), node.machine
    await node.run_task(run)
    await node.run_task(drained)
    await node.awake(10)
    ended_at = machine.now()
    machine.passes(100)
    await node.end(run, ended_at=ended_at)
    ended_at = machine.now()
    await node.awake(7)
    await node.end(drained, ended_at=ended_at)
    assert held_ms(await node.rows(run)) == 10_000
    assert held_ms(await node.rows(drained)) == 117_000, "the agent was at work on the exit"
