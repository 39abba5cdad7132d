"""Tenants against each other's jobs, with a real scheduler: their ids, their message ids and their names."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nats.js import JetStreamContext

from contracts import registry
from contracts.base import Model
from contracts.jobs import JobCancel, JobHold, JobPhase, JobRejected, JobRelease, JobSpec, JobState
from contracts.registry import Message
from contracts.requests import JobQuery, JobsQuery, ProblemCode
from libs.bus import Client, Problem
from libs.bus.accounts import GUEST_API, OPERATOR, tenant_user
from libs.kit.ids import new_id
from tests.scheduler.harness import PATIENCE_S, spec
from tests.waiting import until
from tests.walls.hub import ACME, BETA, WalledServer, principal

pytestmark = pytest.mark.timeout(180)

FLOOD_S = 0.02  # a fifth of the window of JOBS_CMD


@asynccontextmanager
async def acting(hub: WalledServer, tenant: str) -> AsyncGenerator[Client]:
    """A tenant's own client."""
    async with await Client.connect(hub.as_(tenant_user(tenant)), name="tool", api=GUEST_API) as client:
        yield client


async def state(client: Client, job: str, tenant: str) -> JobState | None:
    """The job as the tenant sees it."""
    try:
        return (await client.request(registry.QUERY_JOB, JobQuery(job=job), key=tenant)).job
    except Problem as problem:
        if problem.code is not ProblemCode.NOT_FOUND:
            raise
        return None


async def accepted(client: Client, job: JobSpec) -> JobState:
    found = await until(lambda: state(client, job.job_id, job.tenant), PATIENCE_S, f"{job.name} to be accepted")
    assert found is not None
    return found


async def told(hub: WalledServer, tenant: str, submission_id: str) -> JobRejected:
    """The refusal of a message, as the tenant reads it from its own durable."""
    async with principal(hub, tenant_user(tenant)) as reader:
        more = f"{GUEST_API}.CONSUMER.MSG.NEXT.JOBS.tenant-{tenant}-JOBS"

        async def refusal() -> JobRejected | None:
            message = await reader.take(more)
            if message is None:
                return None
            await message.ack()
            if message.subject != registry.JOBS_REJECTED.subject(tenant):
                return None
            body = JobRejected.model_validate_json(message.data)
            return body if body.submission_id == submission_id else None

        found = await until(refusal, PATIENCE_S, f"{submission_id} to be refused")
        assert found is not None
        return found


async def tell(client: Client, message: Message[Any], body: Model, *, key: str, subject: str) -> str:
    message_id = new_id()
    await client.publish(message, body, key=key, subject=subject, actor="user/eve", id=message_id)
    return message_id


def plain(message_id: str, job: JobSpec) -> dict[str, str]:
    """The headers that docs/publish.md asks for."""
    return {
        "ce-specversion": "1.0",
        "ce-type": registry.JOBS_SUBMIT.type,
        "ce-id": message_id,
        "ce-source": "/pipeline",
        "ce-subject": job.job_id,
    }


@asynccontextmanager
async def flood(hub: WalledServer, message_id: str) -> AsyncGenerator[None]:
    """Beta says one id over and over, as message id and as the id of its event."""
    async with principal(hub, tenant_user(BETA)) as attacker:
        own = spec(tenant=BETA, name="flood", resources={"cards": 1})
        headers = {**plain(message_id, own), "Nats-Msg-Id": message_id}
        body = own.model_dump_json().encode()
        acks: list[dict[str, Any]] = []

        async def say() -> None:
            js = JetStreamContext(attacker.nc, timeout=5)
            while True:
                ack = await js.publish(registry.JOBS_SUBMIT.subject(BETA), body, headers=headers)
                acks.append({"duplicate": ack.duplicate})
                await asyncio.sleep(FLOOD_S)

        saying = asyncio.create_task(say())
        await until(lambda: any(ack["duplicate"] for ack in acks), PATIENCE_S, "the id to be in the window")
        try:
            yield
        finally:
            saying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await saying


async def test_message_ids_that_another_has_used_up_are_still_ours(manned: WalledServer) -> None:
    message_id, job = new_id(), spec(name="ours")
    async with acting(manned, ACME) as client, flood(manned, message_id):
        ack = await client.publish(
            registry.JOBS_SUBMIT, job, key=ACME, subject=job.job_id, actor="user/ada", id=message_id
        )
        assert not ack.duplicate
        assert (await accepted(client, job)).spec == job


async def test_message_ids_of_a_plain_publisher_are_its_own(manned: WalledServer) -> None:
    message_id, job = new_id(), spec(name="plain")
    async with acting(manned, ACME) as client, principal(manned, tenant_user(ACME)) as publisher:
        async with flood(manned, message_id):
            js = JetStreamContext(publisher.nc, timeout=5)
            body = job.model_dump_json().encode()
            ack = await js.publish(registry.JOBS_SUBMIT.subject(ACME), body, headers=plain(message_id, job))
            assert not ack.duplicate
            again = await js.publish(registry.JOBS_SUBMIT.subject(ACME), body, headers=plain(message_id, job))
            assert again.seq > ack.seq
            assert (await accepted(client, job)).spec == job
        found = await client.request(registry.QUERY_JOBS, JobsQuery(limit=100), key=ACME)
        assert [one.job_id for one in found.jobs if one.spec.name == "plain"] == [job.job_id]


async def test_a_body_that_names_another_tenant_is_refused_to_who_sent_it(manned: WalledServer) -> None:
    forged = spec(name="forged")
    async with acting(manned, ACME) as victim, principal(manned, tenant_user(BETA)) as attacker:
        js, message_id = JetStreamContext(attacker.nc, timeout=5), new_id()
        body = forged.model_dump_json().encode()
        await js.publish(registry.JOBS_SUBMIT.subject(BETA), body, headers=plain(message_id, forged))
        refusal = await told(manned, BETA, message_id)
        assert refusal.tenant == BETA
        assert await state(victim, forged.job_id, ACME) is None
        honest = spec(name="honest")
        await tell(victim, registry.JOBS_SUBMIT, honest, key=ACME, subject=honest.job_id)
        await accepted(victim, honest)


async def test_the_id_of_anothers_job_is_not_to_be_had(manned: WalledServer) -> None:
    job = spec(name="first")
    async with acting(manned, ACME) as victim, acting(manned, BETA) as attacker:
        await tell(victim, registry.JOBS_SUBMIT, job, key=ACME, subject=job.job_id)
        before = await accepted(victim, job)
        taken = spec(job_id=job.job_id, tenant=BETA, name="second", resources={"cards": 1})
        message_id = await tell(attacker, registry.JOBS_SUBMIT, taken, key=BETA, subject=job.job_id)
        refusal = await told(manned, BETA, message_id)
        assert ACME not in refusal.model_dump_json()
        assert await state(attacker, job.job_id, BETA) is None
        after = await state(victim, job.job_id, ACME)
        assert after is not None
        assert after.spec == before.spec


async def test_anothers_job_is_neither_seen_nor_moved(manned: WalledServer) -> None:
    job, held = spec(name="seen"), spec(name="held")
    async with acting(manned, ACME) as victim, acting(manned, BETA) as attacker:
        for one in (job, held):
            await tell(victim, registry.JOBS_SUBMIT, one, key=ACME, subject=one.job_id)
            await accepted(victim, one)
        await tell(victim, registry.JOBS_HOLD, JobHold(job_id=held.job_id), key=ACME, subject=held.job_id)
        await _reaches(victim, held, JobPhase.HELD)
        await tell(attacker, registry.JOBS_CANCEL, JobCancel(job_id=job.job_id), key=BETA, subject=job.job_id)
        await tell(attacker, registry.JOBS_HOLD, JobHold(job_id=job.job_id), key=BETA, subject=job.job_id)
        await tell(attacker, registry.JOBS_RELEASE, JobRelease(job_id=held.job_id), key=BETA, subject=held.job_id)
        for name in (job.job_id, job.job_id[:12], job.name):
            assert await state(attacker, name, BETA) is None
        page = await attacker.request(registry.QUERY_JOBS, JobsQuery(limit=100), key=BETA)
        assert {one.tenant for one in page.jobs} <= {BETA}
        own = spec(tenant=BETA, name="own", resources={"cards": 1})
        await tell(attacker, registry.JOBS_SUBMIT, own, key=BETA, subject=own.job_id)
        await accepted(attacker, own)  # whatever beta said before has been handled
        still, kept = await accepted(victim, job), await accepted(victim, held)
        assert still.state in {JobPhase.ACCEPTED, JobPhase.WAITING}
        assert (still.cancel_requested, kept.state) == (False, JobPhase.HELD)
        await tell(victim, registry.JOBS_CANCEL, JobCancel(job_id=job.job_id), key=ACME, subject=job.job_id)
        await _reaches(victim, job, JobPhase.FINISHED)


async def _reaches(client: Client, job: JobSpec, phase: JobPhase) -> None:
    async def there() -> bool:
        found = await state(client, job.job_id, job.tenant)
        return found is not None and found.state is phase

    await until(there, PATIENCE_S, f"{job.name} to be {phase}")


async def test_a_query_for_all_tenants_is_the_operators(manned: WalledServer) -> None:
    async with principal(manned, tenant_user(BETA)) as attacker, principal(manned, OPERATOR) as operator:
        subject = registry.QUERY_JOBS.subject(registry.NO_KEY)
        assert await attacker.ask(subject, b"{}") is None
        answer = await operator.ask(subject, b"{}")
        assert answer is not None
        assert {job["tenant"] for job in json.loads(answer.data)["jobs"]} >= {ACME}
