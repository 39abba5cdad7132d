"""Requests: answered to inboxes only, below 512 KiB, with problems in words."""

import asyncio

import pytest
from nats.aio.msg import Msg

from contracts import registry
from contracts.base import MAX_REPLY_BYTES
from contracts.requests import (
    ClaimReply,
    ClaimRequest,
    JobsPage,
    JobsQuery,
    NodesPage,
    NodesQuery,
    ProblemCode,
)
from libs.bus import BusError, Call, Client, NotYet, Problem, Refused, Tx
from libs.bus.codec import valid_key
from libs.bus.connection import settle, subscribe
from libs.db import Connection, Pool
from libs.kit.ids import new_id
from tests.bus.rig import new_app, running, say
from tests.servers import NatsServer


def claim(node: str = "central-1") -> ClaimRequest:
    return ClaimRequest(
        job_id=new_id(),
        tenant="acme",
        attempt=1,
        generation=1,
        member=0,
        node=node,
        incarnation=new_id(),
        endpoint="127.0.0.1:1",
    )


async def grant(tx: Tx[Connection], call: Call[ClaimRequest]) -> ClaimReply:
    say(tx, "granted")
    return ClaimReply(granted=True, message=f"{call.key} {call.caller}")


async def test_a_call_is_answered_in_one_transaction(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, grant)
    async with running(app):
        reply = await client.request(registry.CALL_CLAIM, claim(), key="central-1")
        assert reply == ClaimReply(granted=True, message="central-1 test")
        event = await anext(client.events([registry.JOBS_REJECTED], since="all"))
        assert event.body.reason.message == "granted"


async def test_pitfall_36b_only_inboxes_are_answered(hub: NatsServer, client: Client, pool: Pool) -> None:
    """A reply subject that is a command's subject must not make the service publish that command."""
    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, grant)
    command = registry.JOBS_CANCEL.subject("victim")
    async with running(app):
        data = claim().model_dump_json().encode()
        await client.connection.publish(registry.CALL_CLAIM.subject("central-1"), data, reply=command)
        await client.request(registry.CALL_CLAIM, claim(), key="central-1")
    assert (await client.js.stream_info("JOBS_CMD")).state.messages == 0


async def test_a_problem_reaches_the_caller(hub: NatsServer, client: Client, pool: Pool) -> None:
    async def jobs(tx: Tx[Connection], call: Call[JobsQuery]) -> JobsPage:
        del tx
        raise Problem(ProblemCode.NOT_FOUND, f"no jobs of {call.key}")

    app = new_app(hub.url, pool)
    app.serve(registry.QUERY_JOBS, jobs)
    async with running(app):
        with pytest.raises(Problem) as caught:
            await client.request(registry.QUERY_JOBS, JobsQuery(), key="acme")
    assert caught.value.code is ProblemCode.NOT_FOUND
    assert caught.value.message == "no jobs of acme"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Refused("not yours"), ProblemCode.INVALID, "not yours"),
        (NotYet("not placed"), ProblemCode.UNAVAILABLE, "not placed: ask again"),
    ],
)
async def test_a_refusal_is_invalid_and_what_comes_early_is_asked_again(
    hub: NatsServer, client: Client, pool: Pool, error: BusError, code: ProblemCode, words: str
) -> None:
    async def jobs(tx: Tx[Connection], call: Call[JobsQuery]) -> JobsPage:
        del tx, call
        raise error

    app = new_app(hub.url, pool)
    app.serve(registry.QUERY_JOBS, jobs)
    async with running(app):
        with pytest.raises(Problem, match=words) as caught:
            await client.request(registry.QUERY_JOBS, JobsQuery(), key="acme", timeout_s=1)
    assert caught.value.code is code


async def test_a_crash_of_the_handler_is_an_internal_problem(hub: NatsServer, client: Client, pool: Pool) -> None:
    async def jobs(tx: Tx[Connection], call: Call[JobsQuery]) -> JobsPage:
        del tx, call
        text = "oops"
        raise ValueError(text)

    app = new_app(hub.url, pool)
    app.serve(registry.QUERY_JOBS, jobs)
    async with running(app) as task:
        with pytest.raises(Problem, match=r"internal: .*ValueError: oops"):
            await client.request(registry.QUERY_JOBS, JobsQuery(), key="acme")
        assert not task.done()


async def test_a_body_that_does_not_fit_is_an_invalid_problem(hub: NatsServer, client: Client, pool: Pool) -> None:
    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, grant)
    async with running(app):
        subject = registry.CALL_CLAIM.subject("central-1")
        answer = await client.connection.request(subject, b'{"job_id": 1}', timeout=5)
        assert (answer.headers or {})["farside-problem"] == "invalid"
        with pytest.raises(Problem, match="names 'central-1' but the body names 'remote-1'"):
            await client.request(registry.CALL_CLAIM, claim("remote-1"), key="central-1")


async def test_an_answer_above_512_kib_is_a_problem(hub: NatsServer, client: Client, pool: Pool) -> None:
    async def grant_at_length(tx: Tx[Connection], call: Call[ClaimRequest]) -> ClaimReply:
        del tx, call
        return ClaimReply.model_construct(granted=True, message="x" * MAX_REPLY_BYTES)

    app = new_app(hub.url, pool)
    app.serve(registry.CALL_CLAIM, grant_at_length)
    async with running(app):
        with pytest.raises(Problem, match="the limit is 524288"):
            await client.request(registry.CALL_CLAIM, claim(), key="central-1")


async def test_nobody_there_is_unavailable_after_the_time_given(hub: NatsServer, client: Client) -> None:
    del hub
    with pytest.raises(Problem, match="nobody serves it") as caught:
        await client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=0.3)
    assert caught.value.code is ProblemCode.UNAVAILABLE


async def test_a_request_finds_a_service_that_comes_up_meanwhile(hub: NatsServer, client: Client, pool: Pool) -> None:
    async def nodes(tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
        del tx, call
        return NodesPage(nodes=[])

    asking = asyncio.create_task(client.request(registry.QUERY_NODES, NodesQuery(), key="_", timeout_s=10))
    app = new_app(hub.url, pool, service="inventory")
    app.serve(registry.QUERY_NODES, nodes)
    async with running(app):
        assert await asking == NodesPage(nodes=[])


async def test_requests_are_served_side_by_side(hub: NatsServer, client: Client, pool: Pool) -> None:
    barrier = asyncio.Barrier(5)

    async def nodes(tx: Tx[Connection], call: Call[NodesQuery]) -> NodesPage:
        del tx, call
        await barrier.wait()
        return NodesPage(nodes=[])

    app = new_app(hub.url, pool, service="inventory")
    app.serve(registry.QUERY_NODES, nodes)
    async with running(app):
        async with asyncio.timeout(10):
            await asyncio.gather(*(client.request(registry.QUERY_NODES, NodesQuery(), key="_") for _ in range(5)))


@pytest.mark.parametrize("key", ["", "a.b", "A", "x" * 64, "*", ">"])
def test_keys_that_cannot_stand_in_a_subject(key: str) -> None:
    assert not valid_key(registry.Key.TENANT, key)


async def test_the_server_knows_a_subscription_once_it_is_settled(hub: NatsServer, client: Client) -> None:
    async with await Client.connect(hub.url, name="settling") as other:

        async def answer(message: Msg) -> None:
            await message.respond(b"here")

        for number in range(200):
            subscription = await subscribe(other.connection, f"settled.{number}", answer)
            await settle(other.connection, 5)
            reply = await client.connection.request(f"settled.{number}", b"", timeout=5)
            assert reply.data == b"here"
            await subscription.unsubscribe()
