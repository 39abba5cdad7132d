"""What strangers get wrong: each mistake is refused with a reason, holds nothing up and loses nothing.

All of it is published as another team would: nats-py, hand-written headers and JSON, no code of Farside.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client as Nats
from nats.js.client import JetStreamContext

from contracts import registry
from contracts.base import ReasonCode
from contracts.deadletters import DeadLetter, DeadReason
from contracts.jobs import JobKind, JobRejected, Outcome, Resources
from libs.kit.ids import new_id
from libs.kit.tasks import reap
from tests.e2e.fleet import SHORT, TENANT, Fleet, fleet
from tests.waiting import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="module")]

SUBMIT = "io.farside.jobs.submit.v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("bad")
    async with fleet(folder, SHORT) as it:
        yield it


class Stranger:
    """Publishes raw messages and collects what becomes of them."""

    def __init__(self, nc: Nats, running: Fleet) -> None:
        self._js = JetStreamContext(nc)
        self.running = running
        self.refusals: list[JobRejected] = []
        self.letters: list[DeadLetter] = []

    async def listen(self) -> None:
        async def refusals() -> None:
            async for event in self.running.client.events([registry.JOBS_REJECTED]):
                self.refusals.append(event.body)

        async def letters() -> None:
            async for event in self.running.client.events([registry.DEADLETTERED]):
                self.letters.append(event.body)

        async with asyncio.TaskGroup() as group:
            group.create_task(refusals())
            group.create_task(letters())

    def body(self, **changes: Any) -> dict[str, Any]:
        spec = self.running.spec(new_id(), steps=1, kind=JobKind.BATCH, checkpoint=None, resources=Resources(cards=0))
        return {**json.loads(spec.model_dump_json(exclude_none=True)), **changes}

    async def send(
        self, body: Any, *, tenant: str = TENANT, drop: str = "", raw: bytes | None = None, **attributes: str
    ) -> str:
        id_ = new_id()
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-type": SUBMIT,
            "ce-source": "/team/strangers",
            "ce-id": id_,
            "ce-time": "2030-01-01T00:00:00Z",
            "ce-datacontenttype": "application/json",
            **{f"ce-{name}": value for name, value in attributes.items()},
        }
        headers.pop(drop, None)
        data = json.dumps(body).encode() if raw is None else raw
        await self._js.publish(f"jobs.v1.submit.{tenant}", data, headers=headers, stream="JOBS_CMD")
        return id_

    async def refused(self, id_: str) -> JobRejected:
        return await until(lambda: next((it for it in self.refusals if it.submission_id == id_), None), 20)

    async def buried(self, words: str) -> DeadLetter:
        def found() -> DeadLetter | None:
            return next((it for it in self.letters if words.encode() in it.data), None)

        return await until(found, 20, f"a dead letter of a message with {words}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(running: Fleet) -> AsyncGenerator[Stranger]:
    nc = Nats()
    await nc.connect(running.stack.config.nats_url)
    it = Stranger(nc, running)
    listening = asyncio.create_task(it.listen())
    yield it
    await reap([listening])
    await nc.close()


async def passes(stranger: Stranger) -> None:
    """A sound job sent behind the mistake runs to its end."""
    body = stranger.body()
    await stranger.send(body)
    job = body["job_id"]

    async def known() -> bool:
        try:
            return (await stranger.running.job(job)).outcome is Outcome.SUCCEEDED
        except Exception:  # noqa: BLE001 - not known yet
            return False

    await until(known, 60, f"job {job} to succeed")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "io.farside.jobs.sumbit.v1"}, "io.farside.jobs.sumbit.v1"),
        ({"type": "io.farside.jobs.submit.v9"}, "v9"),
        ({"drop": "ce-source"}, "ce-source"),
        ({"drop": "ce-type"}, "ce-type"),
        ({"specversion": "0.3"}, "0.3"),
    ],
)
async def test_envelope_mistakes_are_told_to_the_sender(
    stranger: Stranger, changes: dict[str, Any], words: str
) -> None:
    refusal = await stranger.refused(await stranger.send(stranger.body(), **changes))
    assert refusal.reason.code is ReasonCode.INVALID
    assert words in refusal.reason.message


async def test_message_without_an_id_becomes_a_dead_letter(stranger: Stranger) -> None:
    body = stranger.body()
    await stranger.send(body, drop="ce-id")
    letter = await stranger.buried(body["job_id"])
    assert letter.reason is DeadReason.MISSING_ATTRIBUTE
    assert letter.consumer == "scheduler-jobs-submit"
    assert "ce-id" in letter.message


@pytest.mark.parametrize("raw", [b"\xff\xfe{}", b"{not json", b""])
async def test_bodies_that_are_no_json_are_refused(stranger: Stranger, raw: bytes) -> None:
    id_ = await stranger.send({}, raw=raw)
    refusal = await stranger.refused(id_)
    assert refusal.reason.code is ReasonCode.INVALID
    assert refusal.job_id is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"resources": {"cards": -1}}, "resources.cards"),
        ({"resources": {"cards": 10**30}}, "resources.cards"),
        ({"resources": {"memory_bytes": -5}}, "resources.memory_bytes"),
        ({"members": 0}, "members"),
        ({"members": 10**9}, "members"),
        ({"max_runtime_s": -1}, "max_runtime_s"),
        ({"max_runtime_s": 10**12}, "max_runtime_s"),
        ({"retries": -1}, "retries"),
        ({"kind": "mining"}, "kind"),
        ({"command": []}, "command"),
        ({"name": "No Such Name!"}, "name"),
    ],
)
async def test_bodies_against_the_schema_are_refused_by_field(
    stranger: Stranger, changes: dict[str, Any], words: str
) -> None:
    body = stranger.body(**changes)
    refusal = await stranger.refused(await stranger.send(body))
    assert refusal.reason.code is ReasonCode.INVALID
    assert refusal.job_id == body["job_id"]
    assert words in refusal.reason.message


async def test_unknown_tenant_is_refused(stranger: Stranger) -> None:
    refusal = await stranger.refused(await stranger.send(stranger.body(tenant="nobody"), tenant="nobody"))
    assert refusal.reason.code is ReasonCode.UNKNOWN_TENANT
    assert "nobody" in refusal.reason.message


async def test_tenant_unlike_the_subject_is_refused(stranger: Stranger) -> None:
    refusal = await stranger.refused(await stranger.send(stranger.body(tenant="beta")))
    assert refusal.reason.code is ReasonCode.TENANT_MISMATCH
    assert refusal.tenant == TENANT


async def test_job_id_used_again(stranger: Stranger) -> None:
    body = stranger.body()
    await stranger.send(body)
    await stranger.running.until(body["job_id"], lambda _: True, what="the first body to be the job")
    refusal = await stranger.refused(await stranger.send({**body, "name": "another"}))
    assert refusal.reason.code is ReasonCode.JOB_ID_REUSED
    assert refusal.job_id == body["job_id"]
    again = await stranger.send(body)
    await passes(stranger)
    assert not [it for it in stranger.refusals if it.submission_id == again]


@pytest.mark.parametrize(
    "resources",
    [
        {"cards": 1, "accelerator": "Z9000"},
        {"cards": 1, "memory_per_card_bytes": 10**15},
        {"cards": 33},
    ],
)
async def test_cards_that_no_node_has(stranger: Stranger, resources: dict[str, Any]) -> None:
    refusal = await stranger.refused(await stranger.send(stranger.body(resources=resources)))
    assert refusal.reason.code is ReasonCode.NO_SUCH_NODE_TYPE


async def test_long_training_without_checkpoints_is_refused(stranger: Stranger) -> None:
    body = stranger.body(kind="training", max_runtime_s=100_000)
    refusal = await stranger.refused(await stranger.send(body))
    assert refusal.reason.code is ReasonCode.CHECKPOINT_REQUIRED


async def test_body_above_a_mebibyte_is_refused(stranger: Stranger) -> None:
    body = json.dumps(stranger.body()).encode()
    refusal = await stranger.refused(await stranger.send({}, raw=body.ljust(1024 * 1024 + 1)))
    assert refusal.reason.code is ReasonCode.INVALID
    assert "1048577" in refusal.reason.message
    await passes(stranger)


async def test_nothing_is_held_up_and_nothing_is_lost(stranger: Stranger) -> None:
    """Mistakes and sound jobs in one stream: all of the sound ones run, none of the others does."""
    sound: list[str] = []
    for number in range(10):
        await stranger.send({}, raw=b"\x00" * number)
        await stranger.send(stranger.body(resources={"cards": -number - 1}))
        body = stranger.body()
        sound.append(body["job_id"])
        await stranger.send(body)
        await stranger.send(body)
    for job in sound:
        assert (await stranger.running.finished(job)).outcome is Outcome.SUCCEEDED
        assert (await stranger.running.job(job)).attempts == 1
