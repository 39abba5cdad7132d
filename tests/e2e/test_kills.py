"""Every part is killed in the middle of 200 submits, and nobody helps: each job runs once, and is billed once.

All parts are killed in turn in one run; FARSIDE_TEST_KILLS=each gives every part a stack, 200 submits and three kills
of its own. FARSIDE_TEST_SEED repeats the choices of a run. How long each part took to recover is told at the end, and
kept as JSON in FARSIDE_TEST_KILLS_DIR (or the test's own folder).
"""

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from pathlib import Path

import numpy as np
import pytest

from contracts import registry
from contracts.base import Tier
from contracts.invoices import Invoice, InvoicesPage, InvoicesQuery
from contracts.registry import SERVICES
from contracts.requests import StatusQuery
from deploy.local.fleet import Node
from deploy.local.lag import Lag, measure
from libs.cli.session import connected
from libs.cli.verify import verify
from tests.e2e.fleet import TENANT, TENTH, Fleet, fleet
from tests.e2e.kills_checks import EVENTS_LIMIT, WINDOW_MS, gather, usages
from tests.e2e.kills_load import SUBMITS, Load
from tests.e2e.kills_parts import LIMIT_S, PARTS, SPARE, Kills
from tests.e2e.kills_report import report
from tests.waiting import until

EACH = os.environ.get("FARSIDE_TEST_KILLS") == "each"
PLANS = {part: (part,) * 3 for part in PARTS} if EACH else {"all": PARTS}
SEED = int(os.environ.get("FARSIDE_TEST_SEED", int.from_bytes(os.urandom(4), "big")))
SETTINGS = {**TENTH, "FARSIDE_USAGE_PERIOD_S": str(WINDOW_MS // 1000), "FARSIDE_METERING_RECONCILE_S": "0.5"}
CARDS = 24
LOOK_S = 0.5
NODES = (
    Node("central-1", Tier.CENTRAL, CARDS),
    Node("central-2", Tier.CENTRAL, CARDS),
    Node("remote-1", Tier.REMOTE, CARDS),
    Node("remote-2", Tier.REMOTE, CARDS),
    Node(SPARE, Tier.SHARED, 1),
)
TENANT_FILE = f"""
tenant: {TENANT}
version: 1
quotas: {{gpu_hours_month: 100000, cards: 1000, concurrent_jobs: 1000, top_priority: online}}
"""

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("plan", PLANS)
async def test_killed_parts_lose_nothing_and_repeat_nothing(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = np.random.default_rng(SEED)
    tenants = tmp_path / "tenants"
    tenants.mkdir()
    (tenants / f"{TENANT}.yaml").write_text(TENANT_FILE)
    async with fleet(tmp_path, SETTINGS, nodes=NODES, tenants=tenants) as running:
        load, kills = Load(running, chance), Kills(running, _schedule(PLANS[plan], chance))
        try:
            await _campaign(running, load, kills)
            await _jobs_ran_once(running, load, kills)
            await _nothing_is_left(running, kills)
            await _all_is_billed(running, kills)
        except BaseException as error:
            error.add_note(f"FARSIDE_TEST_SEED={SEED}; {kills.done}")
            raise
        told = await report(running, load, kills.done, SEED)
        told.write(Path(os.environ.get("FARSIDE_TEST_KILLS_DIR", tmp_path)) / f"kills-{plan.replace(' ', '-')}.json")
        with capsys.disabled():
            print(f"\n{told.table()}", file=sys.stderr)  # noqa: T201 - standard output is lost where workers run tests


def _schedule(parts: tuple[str, ...], chance: np.random.Generator) -> dict[int, str]:
    """Ahead of which submit each part is killed: evenly spread, but not to the same submit each time."""
    stretch = SUBMITS // (len(parts) + 1)
    return {stretch * turn + int(chance.integers(4)): part for turn, part in enumerate(parts, start=1)}


async def _campaign(running: Fleet, load: Load, kills: Kills) -> None:
    """All submits and all kills; returns when the jobs have ended and everybody has heard of all."""
    kills.lose_spare()
    await load.run(kills.before)
    await kills.recovered()
    await kills.return_spare()
    with suppress(TimeoutError):  # which jobs have not ended is told with their stories
        await _ended(running, load)
    await _quiet(running)
    await until(lambda: _settled(running), LIMIT_S, "metering to have heard that no cards are held")
    await kills.nth(registry.ALERTS_RESOLVED, registry.NO_KEY)
    await kills.close()
    if kills.billed:
        await kills.nth(registry.INVOICES_ISSUED, TENANT, len(kills.billed))
    await _quiet(running)


async def _ended(running: Fleet, load: Load) -> None:
    missing = {submit.spec.job_id for submit in load.submits}
    reading = running.client.events([registry.JOBS_FINISHED], key=TENANT, since="all")
    async with asyncio.timeout(LIMIT_S), aclosing(reading) as events:
        async for event in events:
            missing.discard(event.body.job_id)
            if not missing:
                return


async def _quiet(running: Fleet) -> None:
    await until(lambda: _drained(running), LIMIT_S, "every outbox and every durable to be empty")


async def _drained(running: Fleet) -> bool:
    """Whether nothing is under way: at two looks, for at one a message may slip from a place to one seen before."""
    drained = await _looks_drained(running)
    await asyncio.sleep(LOOK_S)
    return drained and await _looks_drained(running)


async def _looks_drained(running: Fleet) -> bool:
    stack, nodes = running.stack, [node.name for node in NODES]
    lags = await measure(stack.config.nats_url, stack.directory, list(SERVICES), nodes)
    return set(lags.values()) == {Lag(pending=0, outbox=0)}


async def _settled(running: Fleet) -> bool:
    found = await usages(running)
    return len(found) >= SUBMITS and not any(attempt.holding for attempt in found)


async def _jobs_ran_once(running: Fleet, load: Load, kills: Kills) -> None:
    assert load.acknowledged() == set(range(SUBMITS))
    evidence = await gather(running, load, kills.done)
    faults = evidence.faults()
    assert not faults, "\n".join(faults)


async def _nothing_is_left(running: Fleet, kills: Kills) -> None:
    """No dead letter, nothing parked or given up, and no node but the spare one was ever lost."""
    client = running.client
    letters = await client.history([registry.DEADLETTERED])
    assert [letter.body for letter in letters] == []
    assert (await client.js.stream_info(registry.ADVISORIES.name)).state.messages == 0
    for service in SERVICES:
        status = await client.request(registry.STATUS[service], StatusQuery(), key=registry.NO_KEY, timeout_s=20)
        assert (status.outbox_rows, status.parked_rows) == (0, 0), status
    lost = await client.history([registry.NODES_LOST], limit=EVENTS_LIMIT)
    assert [event.body.node for event in lost] == [SPARE]
    alerts = await client.history([registry.ALERTS_FIRED, registry.ALERTS_RESOLVED])
    told = [event.message.name for event in alerts if event.body.name == "NodeLost"]
    assert told == ["fired", "resolved"]
    staged = await client.history([registry.TRANSFERS_COMPLETED, registry.TRANSFERS_FAILED], key=TENANT)
    assert [event.body.transfer_id for event in staged] == kills.transfers


async def _all_is_billed(running: Fleet, kills: Kills) -> None:
    """Every sample is in exactly one invoice, and each invoice is proved from what was measured."""
    invoices = [await _invoice(running, close_id) for close_id in kills.billed]
    measured = await usages(running)
    assert sum(invoice.samples for invoice in invoices) == sum(attempt.samples for attempt in measured)
    async with connected(running.stack.directory) as session:
        for invoice in invoices:
            proof = await verify(session, invoice, say=lambda _: None)
            assert (proof.differences, proof.unreplayed, proof.unchecked, proof.later) == ([], [], [], 0), invoice
            assert proof.recomputed_total_micro == invoice.total_micro


async def _invoice(running: Fleet, close_id: str) -> Invoice:
    query = InvoicesQuery(close_id=close_id)
    page: InvoicesPage = await running.client.request(registry.QUERY_INVOICES, query, key=TENANT, timeout_s=20)
    [invoice] = page.invoices
    return invoice
