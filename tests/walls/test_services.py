"""Each service against all the others: what the registry does not give it, the server refuses it."""

from collections.abc import AsyncGenerator

import pytest

from contracts import registry
from contracts.registry import DEADLETTERED, MESSAGES, REQUESTS, SERVICES, STREAMS, Key
from libs.bus.accounts import OPERATOR
from libs.bus.provision import durables_read_by, provision
from tests.walls.hub import ACME, NODES, ONE, TENANTS, Principal, WalledServer, principal, stored
from tests.walls.world import DURABLES, NEW_STREAM, api_of_all, keys

pytestmark = pytest.mark.timeout(120)

MARK = b'{"said":"by a service"}'


@pytest.fixture(params=SERVICES)
async def service(request: pytest.FixtureRequest, walled: WalledServer) -> AsyncGenerator[Principal]:
    """A service's own user, by which something else than the service speaks."""
    async with principal(walled, request.param) as connected:
        yield connected


def own_durables(service: str) -> set[tuple[str, str]]:
    return set(durables_read_by(service))


def may_say(service: str, message: registry.Message, key: str) -> bool:  # type: ignore[type-arg]
    if message is DEADLETTERED:
        buried = {durable for stream, durable in own_durables(service) if stream != registry.REPLAYS.name}
        return key in buried
    return service in message.producers


def sayable(service: str) -> tuple[list[str], list[str]]:
    """The subjects of messages that a service may publish, and those that it may not."""
    pairs = [(message, key) for message in MESSAGES for key in keys(message.key)]
    own = [message.subject(key) for message, key in pairs if may_say(service, message, key)]
    others = [message.subject(key) for message, key in pairs if not may_say(service, message, key)]
    return own, [*others, *(registry.replay_subject(durable) for _, durable in DURABLES)]


async def refusals(party: Principal) -> set[str]:
    """The subjects that the server has refused so far."""
    await party.settle()
    return {text.rpartition(" to ")[2].split('"')[1] for text in party.refused}


async def test_a_service_publishes_its_own_messages_only(service: Principal, operator: Principal) -> None:
    own, others = sayable(service.user)
    assert own
    before = await stored(operator)
    for subject in others:
        await service.say(subject, MARK, reply=f"_INBOX.{service.user}.x")
    assert {subject.lower() for subject in others} == await refusals(service)
    for subject in own:
        ack = await service.ask(subject, MARK)
        assert ack is not None, subject
        assert b'"seq"' in ack.data
    assert {one.subject for one in await stored(operator) - before} == set(own)


async def test_a_service_asks_what_it_is_a_caller_of(service: Principal, operator: Principal) -> None:
    await operator.serve("query.v1.>", MARK)
    await operator.serve("call.v1.>", MARK)
    asked = [(request, request.subject(key)) for request in REQUESTS for key in (*keys(request.key), registry.NO_KEY)]
    others = {subject for request, subject in asked if service.user not in request.callers}
    for subject in others:
        await service.say(subject, b"{}", reply=f"_INBOX.{service.user}.x")
    assert await refusals(service) == others
    for request, subject in asked:
        if service.user in request.callers:
            answer = await service.ask(subject, b"{}")
            assert answer is not None, request.id


async def test_a_service_takes_and_settles_its_own_work_only(service: Principal, operator: Principal) -> None:
    own = own_durables(service.user)
    others = [pair for pair in DURABLES if pair not in own]
    assert len(others) > len(own)
    words = ("$JS.API.CONSUMER.MSG.NEXT", "$JS.API.CONSUMER.INFO")
    tried = {f"{word}.{stream}.{durable}" for word in words for stream, durable in others}
    acks = {f"$JS.ACK.{stream}.{durable}.1.1.1.1.0" for stream, durable in others}
    for subject in tried:
        await service.say(subject, ONE, reply=f"_INBOX.{service.user}.x")
    for subject in acks:
        await service.say(subject, b"+TERM")
    assert await refusals(service) == {subject.lower() for subject in (*tried, *acks)}
    for stream, durable in own:
        info = await service.ask(f"$JS.API.CONSUMER.INFO.{stream}.{durable}")
        assert info is not None
        assert f'"name":"{durable}"'.encode() in info.data
    assert operator.refused == []


async def test_a_service_neither_makes_nor_changes_nor_reads_streams(service: Principal, operator: Principal) -> None:
    """But the one that it reads without a durable, by name."""
    reads = {message.stream.name for message in MESSAGES if service.user in message.readers}
    before = {stream.name: (await operator.js.stream_info(stream.name)).config for stream in STREAMS}
    kept = await stored(operator)
    calls = {
        f"$JS.API.{call}"
        for call, _ in api_of_all([pair for pair in DURABLES if pair not in own_durables(service.user)])
    }
    calls -= {f"$JS.API.{word}.{name}" for word in ("STREAM.INFO", "DIRECT.GET") for name in reads}
    bodies = dict(api_of_all(DURABLES))
    for call in calls:
        await service.say(call, bodies[call.removeprefix("$JS.API.")], reply=f"_INBOX.{service.user}.x")
    assert await refusals(service) == {call.lower() for call in calls}
    assert {stream.name: (await operator.js.stream_info(stream.name)).config for stream in STREAMS} == before
    assert await stored(operator) == kept
    for name in reads:
        info = await service.ask(f"$JS.API.STREAM.INFO.{name}")
        assert info is not None
        assert b'"error"' not in info.data


async def test_a_service_hears_its_own_inbox_and_what_it_serves(service: Principal, operator: Principal) -> None:
    served = {request.subject("*") for request in REQUESTS if request.service == service.user}
    others = {
        *(message.subject("*") for message in MESSAGES),
        *(request.subject("*") for request in REQUESTS if request.service != service.user),
        *(f"_INBOX.{name}.>" for name in SERVICES if name != service.user),
        *(
            ">",
            "_INBOX.>",
            "_R_.>",
            "$JS.>",
            "$SYS.>",
            "$JS.ACK.>",
            "$JS.EVENT.>",
            "_INBOX.*.pull.>",
            "query.>",
            "call.>",
        ),
    }
    for subject in others:
        await service.listen(subject)
    assert await refusals(service) == {subject.lower() for subject in others}
    for subject in (*served, f"_INBOX.{service.user}.>"):
        await service.listen(subject)
    for subject in served:
        await operator.say(subject.replace("*", "acme"), MARK)
    await operator.say(f"_INBOX.{service.user}.x", MARK)
    await operator.settle()
    await service.settle()
    assert len(service.heard) == len(served) + 1
    assert await refusals(service) == {subject.lower() for subject in others}


async def test_the_server_traces_and_answers_for_a_service_within_its_rights(
    service: Principal, operator: Principal
) -> None:
    """A message trace is published where its header says; that takes the right to publish there."""
    own, others = sayable(service.user)
    before = await stored(operator)
    await service.say(own[0], MARK, Nats_Trace_Dest=others[0], Nats_Trace_Only="1")
    await service.say(own[0], MARK, Nats_Trace_Dest=others[0])
    await service.settle()
    assert {one.subject for one in await stored(operator) - before} <= {own[0]}
    assert others[0].lower() in await refusals(service)


async def test_the_calls_that_are_refused_would_have_done_something() -> None:
    """Else the refusals above would prove little: the operator gets them granted, each by a stream of its own."""
    with WalledServer() as hub:
        await provision(hub.as_(OPERATOR), NODES, TENANTS)
        async with principal(hub, OPERATOR) as operator:
            for event in (registry.INVOICES_ISSUED, registry.JOBS_ACCEPTED):
                assert await operator.ask(event.subject(ACME), MARK)
            await operator.listen("mine")
            granted: set[str] = set()
            for call, body in api_of_all([("USAGE", "billing-usage-rolled-up")]):
                answer = await operator.ask(f"$JS.API.{call}", body)
                if answer is not None and b'"error"' not in answer.data:
                    granted.add(call.partition(".INVOICES")[0].partition(".USAGE")[0])
    assert granted >= {
        *("INFO", "STREAM.NAMES", "STREAM.LIST", f"STREAM.CREATE.{NEW_STREAM}", "STREAM.INFO", "STREAM.UPDATE"),
        *("STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.PURGE", "STREAM.DELETE", "DIRECT.GET"),
        *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST", "CONSUMER.INFO"),
        *("CONSUMER.MSG.NEXT", "CONSUMER.PAUSE", "CONSUMER.DELETE"),
    }


def test_no_message_is_left_without_somebody_who_may_publish_it() -> None:
    for message in MESSAGES:
        services = [name for name in SERVICES if any(may_say(name, message, key) for key in keys(message.key))]
        guests = {registry.TENANT, registry.AGENT, registry.OPERATOR} & set(message.producers)
        assert services or guests, message.id
        assert len(services) <= 1 or message.key is Key.CONSUMER, message.id
