"""What happens in the demo, step by step; findings are filled in as they come, so that a failed demo still reports."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts import registry
from contracts.alerts import AlertPhase
from contracts.base import Tier
from contracts.jobs import Artefact, DatasetRef, JobCancel, JobState, Member
from contracts.nodes import NodePhase
from deploy.demo import accounts, death, finders, reference, stale, tasklog
from deploy.demo.bodies import DIGITS, EXAMPLES, TENANT, Bodies, write
from deploy.demo.findings import Findings, Losses, compare
from deploy.demo.plot import Attempt, Picture
from deploy.demo.proxy import StoreProxy
from deploy.demo.watcher import StoryError, Watcher
from deploy.local.stack import Stack
from libs.cli.datasets import stage
from libs.cli.nodes import all_nodes, cards
from libs.cli.pack import pack
from libs.cli.session import Session
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import artefact_key, attempt_prefix
from libs.objects.datasets import build_manifest

SCHEMA = EXAMPLES.parent / "contracts" / "schemas" / "jobs.submit.v1.json"
DATASET = DatasetRef(name="digits", version="v1")
CHECKPOINTS_BEFORE_DEATH = 2
FIRST, SECOND = 1, 2
SHORT_S, LONG_S = 40.0, 100.0
HTTP_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Scene:
    """What every step works with."""

    stack: Stack
    proxy: StoreProxy
    session: Session
    watcher: Watcher
    folder: Path
    found: Findings
    say: Callable[[str], None]


@dataclass(frozen=True)
class Death:
    """The node that died under the training job, when, and the losses in the task's log on its disk."""

    node: str
    at: datetime
    losses: Losses

    @property
    def step(self) -> int:
        """The last step that the task had told."""
        return max(self.losses)


async def play(scene: Scene) -> Picture:
    """Run the whole demo; StoryError where it cannot go on."""
    scene.found.alerts = scene.watcher.seen.alerts
    await show_nodes(scene)
    dataset = await put_dataset(scene)
    bodies = await submit(scene)
    member = await placements(scene, bodies, dataset)
    dead = await kill_after_checkpoints(scene, bodies.train, member)
    undisturbed = asyncio.create_task(reference.run(scene.folder / "reference", dataset))
    try:
        picture = await resume(scene, bodies.train, dead, undisturbed)
    finally:
        undisturbed.cancel()
        await asyncio.gather(undisturbed, return_exceptions=True)
    await cancel_inference(scene, bodies.infer)
    await repair(scene, dead.node)
    await account(scene, bodies, dead)
    return picture


async def show_nodes(scene: Scene) -> None:
    """Inventory lists every node and its cards."""
    expected = {node.name for node in scene.stack.nodes}
    nodes = await all_nodes(scene.session)
    missing = expected - {node.node for node in nodes if node.state is NodePhase.READY}
    if missing:
        msg = f"inventory does not list {', '.join(sorted(missing))} as ready"
        raise StoryError(msg)
    for node in nodes:
        link = ", through the leaf" if node.facts.tier is Tier.REMOTE else ""
        scene.say(f"  {node.node}: {node.facts.tier}, {cards(node)}{link}")


async def put_dataset(scene: Scene) -> Path:
    """The digits, in object storage as a version of a dataset; returns the folder they came from."""
    folder = scene.folder / "digits"
    await command(str(DIGITS / "dataset.py"), str(folder))
    manifest = await asyncio.to_thread(build_manifest, folder, DATASET)
    done = await stage(scene.session, folder, manifest, TENANT, SHORT_S)
    scene.say(f"dataset {DATASET.name} {DATASET.version} stands verified: {done.objects} files under {done.prefix}")
    return folder


async def submit(scene: Scene) -> Bodies:
    """Upload the code, then let a plain publisher send the four jobs."""
    packed = pack(DIGITS)
    key = artefact_key(TENANT, packed.sha256)
    async with scene.session.store() as store:
        await store.put_if_absent(key, packed.data)
        artefact = Artefact(uri=store.uri(key), sha256=packed.sha256)
    bodies = write(scene.folder, artefact)
    scene.say("examples/publish.py (nats-py and the JSON schema, nothing of Farside) submits four jobs")
    await command(str(EXAMPLES / "publish.py"), scene.stack.config.nats_url, str(SCHEMA), *bodies.files)
    return bodies


async def placements(scene: Scene, bodies: Bodies, dataset: Path) -> Member:
    """Training lands on central, inference and batch on remote, the fourth is refused; returns training's place."""
    wait, found = scene.watcher.wait, scene.found
    refusal = await wait("the refusal of the greedy job", finders.rejected(bodies.greedy), SHORT_S)
    found.greedy = refusal.reason
    train = await wait("the training job to run", finders.running(bodies.train), SHORT_S)
    found.infer = infer = await wait("the inference job to serve", finders.serving(bodies.infer), SHORT_S)
    found.prediction_right = await predict(scene, infer, dataset)
    found.batch = await wait("the batch job to end", finders.ended(bodies.batch), SHORT_S)
    found.batch_member = scene.watcher.seen.placements[bodies.batch].get(found.batch.attempts)
    assert train.attempt is not None
    return train.attempt.members[0]


async def predict(scene: Scene, infer: JobState, dataset: Path) -> bool:
    """Ask the inference job for one held-out digit."""
    assert infer.attempt is not None
    endpoint = infer.attempt.endpoint
    assert endpoint is not None
    images: NDArray[np.float64] = np.load(dataset / "test_images.npy")
    labels: NDArray[np.int64] = np.load(dataset / "test_labels.npy")
    request = urllib.request.Request(endpoint, json.dumps(images[0].tolist()).encode())  # noqa: S310 - it is http

    def ask() -> int:
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as reply:  # noqa: S310 - it is http
            return int(json.load(reply)["digit"])

    digit = await asyncio.to_thread(ask)
    scene.say(f"asked for one held-out digit, {endpoint} takes a {labels[0]} for a {digit}")
    return digit == int(labels[0])


async def kill_after_checkpoints(scene: Scene, train: str, member: Member) -> Death:
    """Wait for the second checkpoint, then kill the training node."""
    count = CHECKPOINTS_BEFORE_DEATH
    question = finders.nth_checkpoint(train, count)
    second = await scene.watcher.wait(f"checkpoint {count} of the training job", question, LONG_S)
    scene.found.second_checkpoint_step = second.step
    died = death.kill_node(scene.stack, member.node)
    at = SystemClock().now()
    scene.found.train_members.append(member)
    dead = Death(member.node, at, tasklog.losses(death.task_log(scene.stack, member.node, train, FIRST)))
    if not dead.losses:
        msg = f"the dead node {member.node} left no step in the task's log"
        raise StoryError(msg)
    scene.found.killed_at_step = dead.step
    scene.say(
        f"SIGKILL to {member.node}: agent, shim and task, {died} processes, the task had come to step {dead.step}"
    )
    return dead


async def resume(scene: Scene, train: str, dead: Death, undisturbed: Awaitable[dict[int, float]]) -> Picture:
    """The job goes on elsewhere, the dead attempt's commit is refused, the losses are those of a run undisturbed."""
    wait, found, seen = scene.watcher.wait, scene.found, scene.watcher.seen
    scene.say("the same script also runs undisturbed outside the stack, for comparison")
    lost = await wait(f"{dead.node} to be declared lost", finders.lost(dead.node), LONG_S)
    restored = await wait("attempt 2 to restore", finders.restored(train, SECOND), LONG_S)
    found.resumed_from_step = restored.step
    failing = asyncio.create_task(fail_checkpoint(scene, train, restored.step or 0))
    newest = max((item for item in seen.committed if item.job_id == train), key=lambda item: item.step)
    scene.say(f"a commit of step {dead.step} is offered with the dead attempt's number")
    found.stale_commit_refused = await stale.is_refused(scene.session, scene.watcher, newest, dead.node, dead.step)
    await failing
    found.train = await wait("the training job to end", finders.ended(train), LONG_S)
    member = seen.placements[train].get(found.train.attempts)
    found.train_members += [member] if member is not None else []
    scene.say("waiting for the undisturbed run to end")
    losses = await undisturbed
    question = finders.reported(train, SECOND, max(losses))
    await wait("the last report and the last checkpoint of the training job", question, SHORT_S)
    measure(scene, train, losses)
    return picture(scene, train, dead, lost.since, losses)


async def fail_checkpoint(scene: Scene, train: str, after_step: int) -> None:
    """Let the store refuse the next checkpoint until the alarm is raised; then it is stored by itself."""
    policy = scene.watcher.seen.jobs[train].spec.checkpoint
    assert policy is not None
    step = after_step + (policy.interval_steps or 0)
    scene.proxy.refuse(scene.session.place.settings.s3_bucket, attempt_prefix(TENANT, train, step, SECOND))
    scene.say(f"a proxy in front of the object store refuses the checkpoint of step {step}")
    question = finders.alert("CheckpointFailed", AlertPhase.FIRING)
    await scene.watcher.wait("the alert about the failed checkpoint", question, LONG_S)
    scene.proxy.mend()
    scene.say("the proxy lets it through from now on; nobody saves anew, the agent tries again by itself")
    question = finders.alert("CheckpointFailed", AlertPhase.RESOLVED)
    await scene.watcher.wait("the end of the alert about the failed checkpoint", question, LONG_S)


async def repair(scene: Scene, node: str) -> None:
    """The dead node is started again, which ends the alarm about it."""
    scene.say(f"{node} is repaired and started again")
    scene.stack.release(node)
    question = finders.alert("NodeLost", AlertPhase.RESOLVED)
    await scene.watcher.wait(f"the end of the alert about {node}", question, SHORT_S)


async def account(scene: Scene, bodies: Bodies, dead: Death) -> None:
    """What was used, what it costs, which alarms there were, and the trace from the first publish to the invoice."""
    session, found, seen = scene.session, scene.found, scene.watcher.seen
    jobs = (bodies.train, bodies.infer, bodies.batch)
    found.balances = await accounts.balance(session, seen, jobs, dead.at)
    for item in found.balances:
        scene.say(
            f"{item.job} attempt {item.attempt}{' (killed)' if item.killed else ''}: {item.windows} windows, "
            f"{item.gpu_ms} gpu_ms measured, {item.held_ms_x_cards} held"
            f"{', equal within a window' if item.holds else ''}"
        )
    invoice = await accounts.bill(session, scene.watcher.wait, scene.say)
    await accounts.prove(session, invoice, found, scene.say)
    await accounts.trace(scene.stack.config.traces, bodies.train, found, scene.say)


def measure(scene: Scene, train: str, losses: dict[int, float]) -> None:
    """Compare the losses after the resume, and take the final accuracy."""
    found, points = scene.found, scene.watcher.seen.progress[train, SECOND].points
    resumed = {step: figures["loss"] for step, figures in points.items() if "loss" in figures}
    found.compared, found.max_loss_difference = compare(resumed, losses, found.resumed_from_step or 0)
    last = max(points)
    found.final_accuracy = points[last].get("accuracy")
    scene.say(
        f"the next {found.compared} losses differ from the undisturbed run by {found.max_loss_difference} at most"
    )
    scene.say(f"accuracy on held-out digits after step {last}: {found.final_accuracy:.1%}")


def picture(scene: Scene, train: str, dead: Death, lost_at: datetime, losses: dict[int, float]) -> Picture:
    """Everything for the plot, times in seconds since the job was submitted."""
    found, seen = scene.found, scene.watcher.seen
    begun = seen.jobs[train].submitted_at
    attempts: list[Attempt] = []
    for number, member in sorted(seen.placements[train].items()):
        report = seen.progress[train, number]
        points = {step: figures["loss"] for step, figures in report.points.items() if "loss" in figures}
        points |= dead.losses if number == FIRST else {}
        reports = [((at - begun).total_seconds(), step) for at, step in report.times]
        attempts.append(Attempt(number, member.node, points, reports))
    committed = [item for item in seen.committed if item.job_id == train]
    return Picture(
        attempts=attempts,
        reference=losses,
        checkpoints=[((item.committed_at - begun).total_seconds(), item.step) for item in committed],
        killed_at_step=dead.step,
        killed_at_s=(dead.at - begun).total_seconds(),
        lost_at_s=(lost_at - begun).total_seconds(),
        resumed_from_step=found.resumed_from_step or 0,
        resumed_at_s=attempts[-1].reports[0][0],
        max_loss_difference=found.max_loss_difference or 0.0,
        final_accuracy=found.final_accuracy or 0.0,
    )


async def cancel_inference(scene: Scene, infer: str) -> None:
    """The report tells the job as it runs now; then it is cancelled."""
    scene.found.infer = scene.watcher.seen.jobs[infer]
    body = JobCancel(job_id=infer, reason="the demo is over")
    await scene.session.publish(registry.JOBS_CANCEL, body, key=TENANT, subject=infer, actor="demo", id=new_id())
    await scene.watcher.wait("the inference job to be cancelled", finders.ended(infer), SHORT_S)


async def command(*arguments: str) -> None:
    """Run a Python script to its end; StoryError with its last words when it fails."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    if process.returncode != 0:
        words = err.decode(errors="replace")[-800:]
        msg = f"{Path(arguments[0]).name} ended with status {process.returncode}: {words}"
        raise StoryError(msg)
