"""A real agent on a machine whose driver is a compiled stand-in: what it announces, and what it reports."""

from collections.abc import Callable
from pathlib import Path

import pytest

from contracts import registry
from contracts.health import NodeReported, Verdict
from contracts.nodes import CardSource, NodeAnnounced
from tests.agent.world import World
from tests.nvml.stub import GPU_IS_LOST, H200, Stub, build, uuid
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 90.0


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(build(tmp_path / "library"), tmp_path / "cards", [H200, H200])


def settings(stub: Stub, **more: str) -> dict[str, str]:
    names = ("LD_LIBRARY_PATH", "FARSIDE_NVML_STUB")
    return {**{name: stub.env[name] for name in names}, "FARSIDE_NVML": "true", "FARSIDE_HEALTH_S": "0.5", **more}


async def reported(world: World, wanted: Callable[[NodeReported], object], what: str) -> NodeReported:
    """The newest report, once it is as wanted; later ones of an agent start replace earlier ones."""

    def newest() -> NodeReported | None:
        found = [event.body for event in world.events if event.message is registry.NODES_REPORTED]
        return found[-1] if found and wanted(found[-1]) else None

    report = await until(newest, PATIENCE_S, what)
    assert report is not None
    return report


def verdicts(report: NodeReported) -> dict[str, str]:
    return {check.name: str(check.verdict) for check in report.checks}


def counts(report: NodeReported) -> dict[str, int]:
    return {f"{card.uuid} {xid.code}": xid.count for card in report.cards for xid in card.xids}


async def test_a_node_reports_its_checks_and_its_cards_before_anything_else_is_known(world: World, stub: Stub) -> None:
    world.agent(**settings(stub)).start()
    report = await reported(world, lambda _: True, "the first report")
    [announced] = await until(
        lambda: [event.body for event in world.events if event.message is registry.NODES_ANNOUNCED], PATIENCE_S
    )
    assert isinstance(announced, NodeAnnounced)
    assert [card.source for card in announced.facts.cards] == [CardSource.NVML] * 2
    assert announced.facts.prechecks == [check.name for check in report.checks]
    assert announced.facts.boot_id == report.boot_id
    assert report.incarnation == announced.incarnation
    assert [card.uuid for card in report.cards] == [uuid(0), uuid(1)]
    assert all(card.temperature_c == 51 for card in report.cards)
    assert {check.name: check.verdict for check in report.checks if check.name != "time_sync"} == {
        "disk_space": Verdict.PASSED,
        "cards": Verdict.PASSED,
    }


async def test_an_xid_is_told_at_once_and_known_to_the_next_agent(world: World, stub: Stub) -> None:
    agent = world.agent(**settings(stub, FARSIDE_HEALTH_S="3600"))
    agent.start()
    first = await reported(world, lambda _: True, "the first report")
    stub.xid(1, 79)
    told = await reported(world, counts, "the XID")
    assert counts(told) == {f"{uuid(1)} 79": 1}
    assert told.counter == first.counter + 1, "nothing was told in between"
    agent.kill()
    stub.forget_xids()
    agent.start()
    again = await reported(world, lambda report: report.incarnation != told.incarnation, "the next agent's report")
    assert counts(again) == {f"{uuid(1)} 79": 1}


async def test_a_card_that_falls_off_the_bus_fails_its_check(world: World, stub: Stub) -> None:
    world.agent(**settings(stub)).start()
    await reported(world, lambda report: len(report.cards) == 2, "both cards")
    stub.fails(0, GPU_IS_LOST)
    report = await reported(world, lambda report: report.cards[0].lost, "the loss")
    [check] = [check for check in report.checks if check.name == "cards"]
    assert (check.verdict, check.detail) == (Verdict.FAILED, "card 0: gpu_is_lost")
    assert (report.cards[0].uuid, report.cards[1].lost) == (uuid(0), False)


async def test_a_driver_that_hangs_is_a_fault_of_its_cards_and_stops_nothing_else(world: World, stub: Stub) -> None:
    world.agent(**settings(stub, FARSIDE_DRIVER_S="0.5")).start()
    await reported(world, lambda report: len(report.cards) == 2, "both cards")
    stub.change(1, hang=1)
    report = await reported(world, lambda report: report.cards[1].fault, "the silence")
    assert {card.fault for card in report.cards} == {"no_answer"}
    assert [card.uuid for card in report.cards] == [uuid(0), uuid(1)]
    run = world.run("true")
    await world.offer(run)
    assert (await world.saw(run, "exited")).cause == "completed"
    del stub.cards[1]["hang"]
    stub.write()
    back = await reported(world, lambda report: report.cards[1].fault is None, "the answer")
    assert back.cards[1].temperature_c == 51


async def test_an_agent_starts_beside_a_driver_that_hangs(world: World, stub: Stub) -> None:
    stub.change(0, hang=1)
    world.agent(**settings(stub, FARSIDE_DRIVER_S="0.5")).start()
    report = await reported(world, lambda _: True, "the first report")
    [announced] = await until(
        lambda: [event.body for event in world.events if event.message is registry.NODES_ANNOUNCED], PATIENCE_S
    )
    assert announced.facts.cards == [], "neither those that cannot be asked nor declared ones in their place"
    assert report.cards == []
    run = world.run("true", cards=[])
    await world.offer(run)
    assert (await world.saw(run, "exited")).cause == "completed"


async def test_what_only_moves_is_told_when_it_is_time(world: World, stub: Stub) -> None:
    world.agent(**settings(stub, FARSIDE_HEALTH_S="0.1", FARSIDE_REPORT_S="2")).start()
    first = await reported(world, lambda _: True, "the first report")
    stub.change(0, utilisation=100)
    second = await reported(world, lambda report: report.counter > first.counter, "the second report")
    third = await reported(world, lambda report: report.counter > second.counter, "the third report")
    for before, after in ((first, second), (second, third)):
        assert after.window_s >= 2 or verdicts(after) != verdicts(before), "told for nothing"
    assert third.cards[0].utilisation_pct == 100, "the mean over its own window"


async def test_declared_cards_are_marked_and_not_asked(world: World) -> None:
    world.agent().start()
    report = await reported(world, lambda _: True, "the first report")
    assert report.cards == []
    [check] = [check for check in report.checks if check.name == "cards"]
    assert (check.verdict, check.detail) == (Verdict.SKIPPED, "2 cards are declared, which no driver shows")


async def test_a_heartbeat_tells_how_long_the_one_before_was_under_way(world: World) -> None:
    world.agent().start()

    async def told() -> bool:
        newest = await world.client.last(registry.NODES_HEARTBEAT, key=world.node)
        return newest is not None and newest.body.counter > 1 and newest.body.round_trip_ms is not None

    await until(told, PATIENCE_S, "a round trip")


async def test_a_node_without_room_says_so(world: World) -> None:
    world.agent(FARSIDE_DISK_FREE_BYTES=str(1 << 60)).start()
    report = await reported(world, lambda _: True, "the first report")
    [check] = [check for check in report.checks if check.name == "disk_space"]
    assert check.verdict is Verdict.FAILED
