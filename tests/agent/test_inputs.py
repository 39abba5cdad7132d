"""What an attempt needs before it starts: code, data, checkpoint, the gang's go, and how a lack of them ends it."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from contracts.attempts import AttemptExited, AttemptStarted, Shard
from contracts.jobs import Artefact, DatasetRef
from contracts.requests import ClaimReply, RestoreReply
from contracts.transfers import TransferCompleted
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from libs.objects import artefact_key, dataset_prefix, shard_key
from libs.objects.datasets import build_manifest, manifest_sha256, upload_folder
from libs.sdk import tensors
from tests.agent.world import TENANT, World
from tests.waiting import until

READER = """
from pathlib import Path
import libs.sdk as farside

with farside.attach() as job:
    folder = job.dataset()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            print("read", path.relative_to(folder), path.read_text())
    print("folder", folder)
"""
RESUMER = """
import numpy as np
import libs.sdk as farside

with farside.attach() as job:
    checkpoint = job.restore()
    start = 0 if checkpoint is None else checkpoint.step
    print("restored", start, None if checkpoint is None else (checkpoint.tensors["w"].tolist(), checkpoint.extra))
    print("rendezvous", job.rendezvous, "rank", job.rank, "of", job.world)
"""


def stage(world: World, tmp_path: Path, version: str = "1") -> TransferCompleted:
    """A dataset version in the store, as transfer would have staged it."""
    source = tmp_path / f"digits-{version}"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_text("alpha")
    (source / "deep" / "b c%.txt").write_text(f"beta {version}")
    dataset = DatasetRef(name="digits", version=version)
    manifest = build_manifest(source, dataset)
    prefix = dataset_prefix(TENANT, f"digits-{new_id()}", version)
    upload_folder(world.store, source, manifest, prefix)
    return TransferCompleted(
        transfer_id=new_id(),
        tenant=TENANT,
        dataset=dataset,
        prefix=world.store.uri(prefix),
        manifest=world.store.uri(f"{prefix}MANIFEST.json"),
        manifest_sha256=manifest_sha256(manifest),
        objects=2,
        size_bytes=manifest.size_bytes,
        completed_at=SystemClock().now(),
    )


async def test_a_dataset_is_fetched_once_verified_and_read(world: World, tmp_path: Path) -> None:
    world.dataset = stage(world, tmp_path)
    world.agent().start()
    runs = [world.run(script=READER, dataset={"name": "digits", "version": "1"}) for _ in range(2)]
    for run in runs:
        await world.offer(run)
        exited: AttemptExited = await world.saw(run, "exited")
        assert exited.cause == "completed", exited
    for entry in world.store.list(world.store.key(world.dataset.prefix)):
        world.store.delete([entry.key])
    texts = [world.log_text(run) for run in runs]
    assert "read a.txt alpha\nread deep/b c%.txt beta 1\n" in texts[0]
    assert texts[0] == texts[1]
    assert len(list((world.folder / "state" / "cache").glob("data-*"))) == 1


async def test_a_damaged_dataset_fails_the_attempt_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.dataset = stage(world, tmp_path, "2")
    key = f"{world.store.key(world.dataset.prefix)}files/a.txt"
    world.store.put(key, b"alphA")
    world.agent().start()
    run = world.run(script=READER, dataset={"name": "digits", "version": "2"})
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "failed"
    assert "a.txt has SHA-256" in exited.message
    assert world.names(run) == ["exited"]
    assert not list((world.folder / "state" / "cache").glob("data-*"))


async def test_a_dataset_that_is_not_staged_fails_with_the_remedy(world: World) -> None:
    world.agent().start()
    run = world.run("true", dataset={"name": "digits", "version": "9"})
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "failed"
    assert "digits version 9 of tenant acme is not staged: put it with" in exited.message


async def test_code_that_is_not_what_was_promised_fails(world: World) -> None:
    world.agent().start()
    data = b"some bytes"
    sha256 = hashlib.sha256(b"other bytes").hexdigest()
    key = artefact_key(TENANT, sha256)
    world.store.put(key, data)
    run = world.run("true", artefact=Artefact(uri=world.store.uri(key), sha256=sha256))
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "failed"
    assert f"{sha256} was promised" in exited.message


async def test_code_of_another_tenant_is_not_run(world: World) -> None:
    world.agent().start()
    data = b"secret"
    sha256 = hashlib.sha256(data).hexdigest()
    key = artefact_key("beta", sha256)
    world.store.put(key, data)
    run = world.run("true", artefact=Artefact(uri=world.store.uri(key), sha256=sha256))
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "failed"
    assert f"lies outside artefacts/{TENANT}/" in exited.message


async def test_a_restored_attempt_starts_from_its_verified_shard(world: World, tmp_path: Path) -> None:
    written = tensors.write(tmp_path / "shard", {"w": np.arange(3)}, tensors.encoded(40, {"rng": 2**70}))
    run = world.run(script=RESUMER, attempt=2, seed=7)
    key = shard_key(TENANT, run.job_id, 40, 1, 0)
    world.store.put(key, written.path)
    shard = Shard(member=0, uri=world.store.uri(key), sha256=written.sha256, size_bytes=written.size_bytes)
    world.restore_reply = RestoreReply(granted=True, step=40, from_attempt=1, shards=[shard])
    world.agent().start()
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed", exited
    assert f"restored 40 ([0, 1, 2], {{'rng': {2**70}}})" in world.log_text(run)
    (request,) = world.restores
    assert (request.attempt, request.members, request.binding.seed) == (2, 1, 7)
    assert run.spec.artefact is not None
    assert request.binding.code_version == run.spec.artefact.sha256
    assert not (world.attempt_folder(run) / "restore").exists()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (RestoreReply(granted=False, message="seed is 8, the checkpoint has 7"), "seed is 8"),
        (RestoreReply(granted=True, step=4, shards=[]), "has 0 shards, the attempt has 1 members"),
    ],
)
async def test_a_restore_that_cannot_be_fails_with_its_reason(world: World, reply: RestoreReply, words: str) -> None:
    world.restore_reply = reply
    world.agent().start()
    run = world.run("true")
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "failed"
    assert words in exited.message


async def test_nothing_starts_before_the_whole_gang_has_claimed(world: World) -> None:
    world.claim_reply = ClaimReply(granted=True, go=False)
    world.agent().start()
    run = world.run(script=RESUMER)
    await world.offer(run)
    await until(lambda: len(world.claims) > 4, 20)
    assert world.restores, "the inputs are fetched while the gang gathers"
    assert world.names(run) == []
    assert len({claim.endpoint for claim in world.claims}) == 1
    world.claim_reply = ClaimReply(granted=True, go=True, rendezvous="127.0.0.1:4711")
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "completed"
    assert "rendezvous 127.0.0.1:4711 rank 0 of 1" in world.log_text(run)


async def test_a_refused_claim_starts_nothing(world: World) -> None:
    world.claim_reply = ClaimReply(granted=False, message="attempt 3 is placed")
    world.agent().start()
    run = world.run("touch", "ran")
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert (exited.cause, exited.message) == ("never_started", "not claimed: attempt 3 is placed")
    assert world.names(run) == ["exited"]
    assert world.restores == []


async def test_a_scheduler_that_never_answers_is_given_up_at_the_start_deadline(world: World) -> None:
    world.claim_reply = None
    world.agent().start()
    run = world.run("true", start_deadline_s=1)
    await world.offer(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    assert "start_deadline_s = 1" in exited.message


async def test_services_that_are_away_are_waited_for(world: World) -> None:
    restore, world.restore_reply = world.restore_reply, None
    world.agent().start()
    run = world.run("true")
    await world.offer(run)
    await until(lambda: world.restores, 20)
    assert world.names(run) == []
    world.restore_reply = restore
    started: AttemptStarted = await world.saw(run, "started", 60)
    assert started.job_id == run.job_id


async def test_a_stop_that_comes_before_its_offer_wins(world: World) -> None:
    run = world.run("touch", "ran")
    await world.order_stop(run, reason="cancelled by the tenant")
    agent = world.agent()
    agent.start()
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    assert "before it was offered: cancelled by the tenant" in exited.message
    await world.offer(run)
    other = world.run("true")
    await world.offer(other)
    await world.saw(other, "exited")
    assert world.names(run) == ["exited"]
    assert [claim.job_id for claim in world.claims if claim.job_id == run.job_id] == []


async def test_a_stop_interrupts_a_claim_that_waits(world: World) -> None:
    world.claim_reply = ClaimReply(granted=True, go=False)
    world.agent().start()
    run = world.run("touch", "ran")
    await world.offer(run)
    await until(lambda: len(world.claims) > 2, 20)
    await world.order_stop(run)
    exited: AttemptExited = await world.saw(run, "exited")
    assert exited.cause == "never_started"
    count = len(world.claims)
    other = world.run("true")
    world.claim_reply = ClaimReply(granted=False, message="no")
    await world.offer(other)
    await world.saw(other, "exited")
    assert [claim for claim in world.claims[count:] if claim.job_id == run.job_id] == []


async def test_an_offer_for_another_node_is_a_dead_letter(world: World) -> None:
    run = world.run("true")
    stray = run.model_copy(update={"members": [run.members[0].model_copy(update={"node": "elsewhere"})]})
    world.agent().start()
    await world.offer(stray)
    good = world.run("true")
    await world.offer(good)
    await world.saw(good, "exited")
    assert world.names(stray) == []
