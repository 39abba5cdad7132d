"""What is measured of an attempt whose agent was stopped or away: never more than was held, and all of its task."""

import signal
from datetime import datetime
from itertools import pairwise

from contracts.attempts import AttemptExited
from contracts.requests import ClaimReply
from contracts.usage import UsageRow
from contracts.work import WorkRun
from services.agent import handoff, proctree
from services.agent.handoff import Ending
from tests.agent.world import AgentProcess, World
from tests.waiting import until

PERIOD_S = 1
LEASE_S = 10.0
METERED = {
    "FARSIDE_USAGE_PERIOD_S": str(PERIOD_S),
    "FARSIDE_LEASE_S": str(LEASE_S),
    "FARSIDE_LOST_S": "12",
}
UNTIL_TOLD = "import time\nfrom pathlib import Path\nwhile not Path('finish').exists(): time.sleep(0.02)\n"
NEAR_MS = 300


async def pass_s(seconds: float) -> None:
    """Time that the agent spends stopped, or is not there."""
    since = proctree.boottime()
    await until(lambda: proctree.boottime() > since + seconds, seconds + 10, "time to pass")


async def stopped(agent: AgentProcess, seconds: float) -> None:
    """The agent process stands still; its shims go on."""
    agent.signal(signal.SIGSTOP)
    await pass_s(seconds)
    agent.signal(signal.SIGCONT)


async def told_ms(world: World, run: WorkRun) -> int:
    """All that was measured of one card of an attempt that has exited; a later one's samples come after all of its."""
    world.claim_reply = ClaimReply(granted=True, go=True)
    later = world.run("true", cards=[0])
    await world.offer(later)
    await world.saw(later, "exited")
    await until(lambda: world.usage(later), 20, "samples of a later attempt")
    return sum(row.quantity for row in world.usage(run)) // len(run.members[0].cards)


def max_end(rows: list[UsageRow]) -> float:
    return max((row.window_end.timestamp() for row in rows), default=0.0)


def ended_ms(ending: Ending | None) -> int:
    """When the task ended, as its shim wrote it down."""
    assert ending is not None
    return int(datetime.fromisoformat(ending.ended_at).timestamp() * 1000)


async def begun(world: World, run: WorkRun) -> AgentProcess:
    """An agent whose task runs, and a window of it is told."""
    agent = world.agent(**METERED)
    agent.start()
    await world.offer(run)
    await world.saw(run, "started")
    await until(lambda: world.usage(run), 20, "a window")
    return agent


async def prepared(world: World, run: WorkRun) -> AgentProcess:
    """An agent with a claimed attempt that waits for its go, and a window of it is told."""
    world.claim_reply = ClaimReply(granted=True, go=False)
    agent = world.agent(**METERED)
    agent.start()
    await world.offer(run)
    await until(lambda: len(world.usage(run)) > 1, 20, "a window")
    return agent


async def test_an_agent_stopped_past_its_lease_measures_to_the_end_that_the_shim_wrote(world: World) -> None:
    run = world.run("sleep", "300", cards=[0, 1], stop_grace_s=1)
    agent = await begun(world, run)
    await stopped(agent, 1.2 * LEASE_S)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "lease_expired"
    held_from, _ = world.hold(run)
    truth_ms = ended_ms(handoff.read_ending(world.attempt_folder(run))) - held_from
    assert abs(await told_ms(world, run) - truth_ms) < NEAR_MS


async def test_an_agent_stopped_for_less_than_its_lease_loses_nothing(world: World) -> None:
    run = world.run(script=UNTIL_TOLD, stop_grace_s=1)
    agent = await begun(world, run)
    await stopped(agent, 0.6 * LEASE_S)
    (world.attempt_folder(run) / "work" / "finish").touch()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed"
    held_from, held_to = world.hold(run)
    assert held_to is not None
    assert await told_ms(world, run) == held_to - held_from
    rows = world.usage(run)
    assert all(row.window_end == after.window_start for row, after in pairwise(rows))
    assert 0 <= held_to - ended_ms(handoff.read_ending(world.attempt_folder(run))) < 5000


async def test_what_ended_while_its_agent_was_stopped_inside_the_lease_ends_then(world: World) -> None:
    run = world.run(script=UNTIL_TOLD)
    agent = await begun(world, run)
    agent.signal(signal.SIGSTOP)
    (world.attempt_folder(run) / "work" / "finish").touch()
    await pass_s(0.6 * LEASE_S)
    agent.signal(signal.SIGCONT)
    await world.saw(run, "exited")
    held_from, _ = world.hold(run)
    truth_ms = ended_ms(handoff.read_ending(world.attempt_folder(run))) - held_from
    assert abs(await told_ms(world, run) - truth_ms) < NEAR_MS


async def test_an_agent_away_past_its_lease_measures_to_the_end_that_the_shim_wrote(world: World) -> None:
    run = world.run("sleep", "300", stop_grace_s=1)
    agent = await begun(world, run)
    agent.kill()
    await pass_s(1.2 * LEASE_S)
    agent.start()
    await world.saw(run, "exited")
    held_from, _ = world.hold(run)
    truth_ms = ended_ms(handoff.read_ending(world.attempt_folder(run))) - held_from
    assert abs(await told_ms(world, run) - truth_ms) < NEAR_MS


async def test_a_job_that_keeps_running_unseen_is_held_past_the_lease(world: World) -> None:
    run = world.run(script=UNTIL_TOLD, kind="inference", max_runtime_s=None, on_partition="keep")
    agent = await begun(world, run)
    await stopped(agent, 1.2 * LEASE_S)
    seen = len(world.usage(run))
    await until(lambda: len(world.usage(run)) > seen + 10, 20, "the windows of the stop")
    (world.attempt_folder(run) / "work" / "finish").touch()
    await world.saw(run, "exited")
    held_from, held_to = world.hold(run)
    assert held_to is not None
    assert await told_ms(world, run) == held_to - held_from > 1200 * LEASE_S


async def test_a_claimed_attempt_is_not_measured_while_its_agent_is_away(world: World) -> None:
    """The agent is killed, and comes back after the node was given up: the scheduler refuses the claim."""
    run = world.run("true")
    agent = await prepared(world, run)
    before_s = max_end(world.usage(run))
    agent.kill()
    world.claim_reply = ClaimReply(granted=False, message="the attempt is lost")
    await pass_s(1.2 * LEASE_S)
    agent.start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    held_from, _ = world.hold(run)
    measured_ms = before_s * 1000 - held_from
    assert measured_ms <= await told_ms(world, run) <= measured_ms + 1000 * PERIOD_S


async def test_a_claimed_attempt_is_not_measured_while_its_agent_is_stopped(world: World) -> None:
    run = world.run("true")
    agent = await prepared(world, run)
    before_s = max_end(world.usage(run))
    agent.signal(signal.SIGSTOP)
    world.claim_reply = ClaimReply(granted=False, message="the attempt is lost")
    await pass_s(1.2 * LEASE_S)
    agent.signal(signal.SIGCONT)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    held_from, _ = world.hold(run)
    measured_ms = before_s * 1000 - held_from
    assert measured_ms <= await told_ms(world, run) <= measured_ms + 1000 * PERIOD_S


async def test_a_claimed_attempt_that_starts_after_its_agent_was_away_is_measured_from_the_return(world: World) -> None:
    run = world.run(script=UNTIL_TOLD)
    agent = await prepared(world, run)
    agent.kill()
    away_s = 1.2 * LEASE_S
    await pass_s(away_s)
    world.claim_reply = ClaimReply(granted=True, go=True)
    agent.start()
    await world.saw(run, "started")
    (world.attempt_folder(run) / "work" / "finish").touch()
    await world.saw(run, "exited")
    held_from, held_to = world.hold(run)
    assert held_to is not None
    told = await told_ms(world, run)
    task = handoff.read_task(world.attempt_folder(run))
    assert task is not None
    ran_ms = held_to - int(datetime.fromisoformat(task.started_at).timestamp() * 1000)
    assert ran_ms <= told <= held_to - held_from - away_s * 1000
