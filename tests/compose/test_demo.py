"""The demo's jobs on the stack in containers: the one that trains dies on one node and goes on on another."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from contracts import registry
from contracts.alerts import AlertPhase
from contracts.base import ReasonCode, Tier
from contracts.jobs import Artefact, JobCancel, JobState, Outcome
from contracts.nodes import NodePhase
from contracts.registry import SERVICES
from deploy.demo import accounts, finders
from deploy.demo.bodies import DIGITS, EXAMPLES, TENANT, Bodies, write
from deploy.demo.findings import Findings
from deploy.demo.story import DATASET, SCHEMA, command
from deploy.demo.watcher import Watcher
from deploy.local.fleet import NODES
from libs.cli.datasets import stage
from libs.cli.errors import UnreachableError
from libs.cli.nodes import all_nodes
from libs.cli.pack import pack
from libs.cli.session import Session, connected
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import artefact_key
from libs.objects.datasets import build_manifest
from tests.compose.engine import Composed, EngineError, say
from tests.waiting import until

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1200)]

WAIT_S = 240.0
USER = "10001"
LAST_STEP = 1200
FARSIDE = (*SERVICES, *(node.name for node in NODES))
# Asks an inference job for one digit, from another node's container.
PREDICT = (
    "import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode())).read().decode())"
)
# Tells of each address whether it takes a connection; names of another network are looked up for seconds in vain.
REACH = """
import concurrent.futures, json, socket, sys

def reaches(address):
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError:
        return False
    return True

with concurrent.futures.ThreadPoolExecutor() as pool:
    print(json.dumps(dict(zip(sys.argv[1:], pool.map(reaches, sys.argv[1:])))))
"""
PROBE = ("python", "-I", "-S", "/opt/farside/checks/healthy.py")


@dataclass(frozen=True)
class Scene:
    """What the test works with."""

    stack: Composed
    session: Session
    watcher: Watcher
    folder: Path


@pytest.fixture
async def scene(stack: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """The operator's session, by the published ports."""
    told = stack.settings
    url = f"nats://operator:{told['NATS_PASSWORD_OPERATOR']}@127.0.0.1:{told['FARSIDE_NATS_PORT']}"
    monkeypatch.setenv("FARSIDE_NATS_URL", url)
    monkeypatch.setenv("FARSIDE_S3_ENDPOINT", f"http://127.0.0.1:{told['FARSIDE_S3_PORT']}")
    monkeypatch.setenv("FARSIDE_S3_ACCESS_KEY", told["S3_ACCESS_KEY"])
    monkeypatch.setenv("FARSIDE_S3_SECRET_KEY", told["S3_SECRET_KEY"])
    async with connected(None) as session, Watcher(session.client, say) as watcher:
        yield Scene(stack, session, watcher, tmp_path)


async def ready(scene: Scene) -> bool:
    """Whether inventory answers by now, and lists every node of the fleet as ready."""
    try:
        found = await all_nodes(scene.session)
    except UnreachableError:
        return False
    return {node.node for node in found if node.state is NodePhase.READY} == {node.name for node in NODES}


async def submit(scene: Scene) -> Bodies:
    """Stage the dataset, put the code into the store, and let a plain publisher send the four jobs."""
    folder = scene.folder / "digits"
    await command(str(DIGITS / "dataset.py"), str(folder))
    manifest = await asyncio.to_thread(build_manifest, folder, DATASET)
    await stage(scene.session, folder, manifest, TENANT, WAIT_S)
    packed = pack(DIGITS)
    async with scene.session.store() as store:
        key = artefact_key(TENANT, packed.sha256)
        await store.put_if_absent(key, packed.data)
        artefact = Artefact(uri=store.uri(key), sha256=packed.sha256)
    bodies = write(scene.folder, artefact)
    url = scene.session.place.settings.nats_url
    await command(str(EXAMPLES / "publish.py"), url, str(SCHEMA), *bodies.files)
    return bodies


async def check_inference(scene: Scene, infer: JobState) -> None:
    """The other remote node gets the right answer from the job, over the data network."""
    assert infer.attempt is not None
    assert infer.attempt.endpoint is not None
    member = infer.attempt.members[0]
    assert member.tier is Tier.REMOTE
    other = next(node.name for node in NODES if node.behind_leaf and node.name != member.node)
    images, labels = (np.load(scene.folder / "digits" / f"test_{name}.npy") for name in ("images", "labels"))
    words = ("python", "-c", PREDICT, infer.attempt.endpoint, json.dumps(images[0].tolist()))
    answer = await asyncio.to_thread(scene.stack.inside, other, *words)
    assert json.loads(answer)["digit"] == int(labels[0])


async def kill_under(scene: Scene, train: str) -> str:
    """Kill the container under the training job after its second checkpoint; the node's name."""
    await scene.watcher.wait("two checkpoints", finders.nth_checkpoint(train, 2), WAIT_S)
    node = scene.watcher.seen.placements[train][1].node
    await asyncio.to_thread(scene.stack.kill, node)
    say(f"docker kill: {node}")
    return node


async def check_resumed(scene: Scene, train: str, dead: str) -> None:
    """The job ended well on the other central node, from the newest checkpoint of the first attempt."""
    wait, seen = scene.watcher.wait, scene.watcher.seen
    await wait(f"{dead} to be declared lost", finders.lost(dead), WAIT_S)
    restored = await wait("attempt 2 to restore", finders.restored(train, 2), WAIT_S)
    job = await wait("the training job to end", finders.ended(train), WAIT_S)
    assert (job.outcome, job.attempts) == (Outcome.SUCCEEDED, 2)
    first, second = (seen.placements[train][attempt] for attempt in (1, 2))
    assert {first.node, second.node} == {"central-1", "central-2"}
    await wait("the last step", finders.reported(train, 2, LAST_STEP), WAIT_S)
    points = seen.progress[train, 2].points
    saved = [item.step for item in seen.committed if (item.job_id, item.attempt) == (train, 1)]
    assert len(saved) >= 2
    assert restored.step == max(saved)
    assert min(points) == max(saved) + 1
    assert points[LAST_STEP]["accuracy"] >= 0.95


async def check_accounts(scene: Scene, bodies: Bodies, killed_at: datetime) -> None:
    """What was measured is what was held, and the invoice is proved by other code."""
    jobs = (bodies.train, bodies.infer, bodies.batch)
    balances = await accounts.balance(scene.session, scene.watcher.seen, jobs, killed_at)
    assert len(balances) == 4, balances
    assert all(item.holds for item in balances), balances
    invoice = await accounts.bill(scene.session, scene.watcher.wait, say)
    found = Findings()
    await accounts.prove(scene.session, invoice, found, say)
    assert invoice.total_micro > 0
    assert invoice.total_micro == found.recomputed_total_micro
    assert found.bill_differences == []


async def test_a_training_job_survives_the_death_of_its_container(scene: Scene) -> None:
    wait, stack = scene.watcher.wait, scene.stack
    await until(lambda: ready(scene), WAIT_S, "four nodes ready")
    bodies = await submit(scene)
    refused = await wait("the refusal of the greedy job", finders.rejected(bodies.greedy), WAIT_S)
    assert refused.reason.code is ReasonCode.QUOTA_EXCEEDED
    dead = await kill_under(scene, bodies.train)
    died_at = SystemClock().now()
    await check_inference(scene, await wait("inference", finders.serving(bodies.infer), WAIT_S))
    batch = await wait("the batch job to end", finders.ended(bodies.batch), WAIT_S)
    assert batch.outcome is Outcome.SUCCEEDED
    await check_resumed(scene, bodies.train, dead)
    cancel = JobCancel(job_id=bodies.infer, reason="the test is over")
    await scene.session.publish(
        registry.JOBS_CANCEL, cancel, key=TENANT, subject=bodies.infer, actor="test", id=new_id()
    )
    await wait("inference to be cancelled", finders.ended(bodies.infer), WAIT_S)
    await asyncio.to_thread(stack.start, dead)
    await wait(f"{dead} to be back", finders.alert("NodeLost", AlertPhase.RESOLVED), WAIT_S)
    await check_accounts(scene, bodies, died_at)
    journey = json.loads(await asyncio.to_thread(stack.cli, "trace", bodies.train, "--json"))
    assert journey["orphans"] == []


async def test_every_container_is_healthy(stack: Composed) -> None:
    def healthy() -> bool:
        found = {service: health for service, health, _ in stack.health()}
        return all(found[name] == "healthy" for name in (*FARSIDE, "postgres"))

    await until(healthy, WAIT_S, "all to be healthy")
    assert {service: code for service, _, code in stack.health() if code} == {}


@pytest.mark.parametrize("service", [*SERVICES, "central-1"])
def test_no_process_is_root(stack: Composed, service: str) -> None:
    assert stack.inside(service, "id", "-u") == USER


@pytest.mark.parametrize(
    ("service", "reached", "unreached"),
    [
        ("scheduler", "hub:4222 postgres:5432", "central-1.data:9400 remote-1:9400"),
        ("central-1", "hub:4222 seaweed:8333", "postgres:5432 scheduler:9400"),
        ("remote-1", "leaf:4222 seaweed:8333", "hub:4222 postgres:5432"),
    ],
)
def test_each_part_reaches_what_it_needs(stack: Composed, service: str, reached: str, unreached: str) -> None:
    addresses = [*reached.split(), *unreached.split()]
    found = json.loads(stack.inside(service, "python", "-c", REACH, *addresses))
    assert found == {**dict.fromkeys(reached.split(), True), **dict.fromkeys(unreached.split(), False)}


async def test_the_health_check_tells_of_a_bus_that_is_away(stack: Composed) -> None:
    def told() -> str:
        try:
            return stack.inside("scheduler", *PROBE)
        except EngineError as error:
            return str(error)

    stack.kill("hub")
    await until(lambda: told().endswith("no connection to the bus"), WAIT_S, "the bus to be missed")
    stack.start("hub")
    await until(lambda: told() == "healthy", WAIT_S, "the bus to be found again")
