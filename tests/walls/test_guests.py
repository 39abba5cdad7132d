"""Tenants and nodes, at the hub and behind a leaf node, against everybody else."""

import json
from collections import Counter
from typing import Any

import pytest
from nats.js import JetStreamContext

from contracts.registry import STREAMS
from libs.bus.accounts import GUEST_API, OPERATOR
from tests.waiting import until
from tests.walls.conftest import Parties
from tests.walls.hub import ONE, Principal, Stored, WalledServer, line, stored
from tests.walls.world import APIS, DURABLES, NEW_STREAM, api_of_all

pytestmark = pytest.mark.timeout(180)

MARK = b'{"said":"by the intruder"}'
OWN = b'{"said":"in its own name"}'
SECRET = b'{"said":"to the victim alone"}'
ANSWERS = "mine.answers"


async def in_its_own_name(party: Principal, subject: str, data: bytes = OWN) -> None:
    """The act that is allowed; whatever the party sent before has been handled when its PubAck comes."""
    ack = await party.ask(subject, data)
    assert ack is not None, f"{party.user} may say {subject}"
    assert "seq" in json.loads(ack.data), ack.data


async def form(operator: Principal) -> dict[str, Any]:
    """The configuration of all streams and consumers, and how far each consumer is."""
    js = JetStreamContext(operator.nc, timeout=10)
    found: dict[str, Any] = {}
    for stream in STREAMS:
        found[stream.name] = (await js.stream_info(stream.name)).config
        for info in await js.consumers_info(stream.name):
            acked = (info.num_ack_pending, info.num_redelivered, info.delivered, info.ack_floor)
            found[f"{stream.name}/{info.name}"] = (info.config, acked)
    assert len(found) == len(STREAMS) + len(DURABLES)
    return found


async def test_nobody_speaks_in_anothers_name(parties: Parties, operator: Principal) -> None:
    side, others = parties.side, parties.side.others()
    assert parties.other.says in others
    assert len(others) > len(DURABLES)
    await operator.listen(">")
    before = await stored(operator)
    for subject in others:
        await parties.intruder.say(subject, MARK)
        await parties.intruder.say(subject, MARK, reply=ANSWERS)
    await in_its_own_name(parties.intruder, side.says)
    await in_its_own_name(parties.victim, parties.other.says)
    await operator.settle()
    gained = await stored(operator) - before
    assert {one.subject: one.data for one in gained} == {side.says: OWN, parties.other.says: OWN}
    assert [message.subject for message in operator.heard if message.data == MARK] == []


async def test_the_api_of_streams_and_consumers_is_closed(parties: Parties, operator: Principal) -> None:
    durables = parties.side.others_durables()
    assert parties.other.reads in durables
    await in_its_own_name(parties.victim, parties.other.says)
    await in_its_own_name(operator, parties.other.news, SECRET)
    await parties.intruder.listen(ANSWERS)
    await parties.intruder.listen("mine")
    before, kept = await form(operator), await stored(operator)
    for api in APIS:
        for call, body in api_of_all(durables):
            await parties.intruder.say(f"{api}.{call}", body, reply=ANSWERS)
    info = await parties.intruder.ask(parties.side.info)
    assert info is not None, "its own durable it may ask about"
    assert json.loads(info.data)["name"] == parties.side.reads[1]
    assert [message.data for message in parties.intruder.heard if not _refusal(message.data)] == []
    assert await form(operator) == before
    assert await stored(operator) == kept
    names = await operator.js.streams_info()
    assert NEW_STREAM not in {info.config.name for info in names}


def _refusal(data: bytes) -> bool:
    return data == b"" or "error" in json.loads(data)


async def test_nobody_hears_what_others_say_ask_and_are_told(parties: Parties, operator: Principal) -> None:
    for subject in (">", "_INBOX.>", "_R_.>", "$JS.>", "$SYS.>", "*.*.*.*", parties.other.says, parties.other.news):
        await parties.intruder.listen(subject)
    await operator.serve(parties.other.asks, SECRET)
    await in_its_own_name(parties.victim, parties.other.says, SECRET)
    reply = await parties.victim.ask(parties.other.asks, SECRET)
    assert reply is not None
    assert reply.data == SECRET
    await in_its_own_name(operator, parties.other.news, SECRET)
    news = await parties.victim.take(parties.other.more)
    assert news is not None
    assert news.subject == parties.other.news
    await news.ack()
    await in_its_own_name(operator, parties.side.news, OWN)
    await parties.intruder.say(parties.side.more, ONE, reply=ANSWERS)
    await until(lambda: [message for message in parties.intruder.heard if message.subject == parties.side.news], 10)
    assert [message.subject for message in parties.intruder.heard if SECRET in message.data] == []


async def test_nobody_takes_or_settles_what_was_delivered_to_another(parties: Parties, operator: Principal) -> None:
    await in_its_own_name(operator, parties.other.news, SECRET)
    before = await form(operator)
    news = await parties.victim.take(parties.other.more)
    assert news is not None
    stream, durable = parties.other.reads
    for verdict in (b"+ACK", b"-NAK", b"+TERM", b"+WPI", b'+NXT {"batch":1}', b""):
        await parties.intruder.say(news.reply, verdict, reply=ANSWERS)
    for _, name in parties.side.others_durables():
        await parties.intruder.say(f"$JS.ACK.{stream}.{name}.1.1.1.1.0", b"+TERM", reply=ANSWERS)
    await in_its_own_name(parties.intruder, parties.side.says)
    pending = (await operator.js.consumer_info(stream, durable)).num_ack_pending or 0
    assert pending
    await news.ack_sync(timeout=5)
    found = await operator.js.consumer_info(stream, durable)
    assert (found.num_ack_pending, found.num_redelivered) == (pending - 1, 0)
    after = await form(operator)
    mine = f"{stream}/{durable}"
    assert {name: how for name, how in after.items() if name != mine} == {
        name: how for name, how in before.items() if name != mine
    }


async def test_no_answer_goes_where_another_would_take_it_for_a_message(parties: Parties, operator: Principal) -> None:
    side = parties.side
    await operator.serve(side.asks, MARK)
    await in_its_own_name(operator, side.news, OWN)
    got = await parties.intruder.take(side.more)
    assert got is not None
    await operator.listen(">")
    before = await stored(operator)
    targets = [*side.others(), "$JS.API.STREAM.PURGE.JOBS", "_INBOX.scheduler.pull.x.1"]
    for target in targets:
        await parties.intruder.say(side.says, MARK, reply=target)
        await parties.intruder.say(side.asks, b"", reply=target)
        await parties.intruder.say(side.more, ONE, reply=target)
        await parties.intruder.say(side.info, b"", reply=target)
        await parties.intruder.say(got.reply, b'+NXT {"batch":1}', reply=target)
    await in_its_own_name(parties.intruder, side.says)
    await operator.settle()
    gained = await stored(operator) - before
    assert gained == Counter(
        {
            Stored(_stream_of(gained, MARK), side.says, MARK): len(targets),
            Stored(_stream_of(gained, OWN), side.says, OWN): 1,
        }
    )
    foreign = {*targets} - {side.news}
    assert [message.subject for message in operator.heard if message.subject in foreign] == []


def _stream_of(gained: Counter[Stored], data: bytes) -> str:
    return next(one.stream for one in gained if one.data == data)


async def test_what_headers_ask_of_the_server_reaches_nobody_else(parties: Parties, operator: Principal) -> None:
    side, theirs = parties.side, parties.other.says
    await in_its_own_name(parties.victim, theirs)
    await operator.listen(">")
    before, kept = await form(operator), await stored(operator)
    await parties.intruder.say(side.says, MARK, Nats_Rollup="all")
    await parties.intruder.say(side.says, MARK, Nats_Rollup="sub")
    await parties.intruder.say(side.says, MARK, Nats_TTL="1s")
    await parties.intruder.say(side.says, MARK, Nats_Schedule="@every 1s", Nats_Schedule_Target=theirs)
    await parties.intruder.say(side.says, MARK, Nats_Batch_Id="b", Nats_Batch_Sequence="1", Nats_Batch_Commit="1")
    await parties.intruder.say(side.says, MARK, Nats_Incr="+1")
    await parties.intruder.say(side.says, MARK, Nats_Stream_Source=f"JOBS 1 > > {theirs}")
    await parties.intruder.say(side.says, MARK, Nats_Trace_Dest=theirs, Nats_Trace_Only="1")
    await in_its_own_name(parties.intruder, side.says)
    assert await stored(operator) - kept == Counter(
        {one: 1 for one in kept if one.data == OWN and one.subject == side.says}
    )
    assert await form(operator) == before
    allowed: list[dict[str, str]] = [
        {"Nats_Subject": theirs},
        {"Nats_Trace_Dest": theirs},
        {
            "Nats_Trace_Dest": parties.other.news,
            "traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
        },
        {"Nats_Request_Info": '{"acc":"FARSIDE","user":"operator"}'},
        {"Nats_Marker_Reason": "Purge", "KV_Operation": "PURGE"},
    ]
    for headers in allowed:
        await parties.intruder.say(side.says, MARK, **headers)
    await in_its_own_name(parties.intruder, side.says)
    await operator.settle()
    gained = await stored(operator) - kept
    assert {one.subject for one in gained} == {side.says}
    assert sum(gained.values()) == len(allowed) + 2
    assert kept - await stored(operator) == Counter()
    assert {message.subject for message in operator.heard if not message.subject.startswith(("_", "$"))} == {side.says}


async def test_the_server_tells_a_guest_about_itself_alone(parties: Parties, operator: Principal) -> None:
    await parties.intruder.listen(ANSWERS)
    about = ("CONNZ", "SUBSZ", "STATSZ", "VARZ", "JSZ", "ACCOUNTZ", "LEAFZ", "HEALTHZ", "STATZ", "INFO", "CONNS")
    for word in about:
        for target in ("SERVER.PING", "ACCOUNT.PING", "ACCOUNT.FARSIDE", f"ACCOUNT.{parties.other.user}"):
            await parties.intruder.say(
                f"$SYS.REQ.{target}.{word}", b'{"auth":true,"subscriptions":true}', reply=ANSWERS
            )
    await parties.intruder.say("$SYS.REQ.SERVER.RELOAD", reply=ANSWERS)
    await parties.intruder.say("$SYS.REQ.CLAIMS.UPDATE", reply=ANSWERS)
    await in_its_own_name(parties.intruder, parties.side.says)
    me = await parties.intruder.ask("$SYS.REQ.USER.INFO")
    assert me is not None
    assert json.loads(me.data)["data"]["account"] == parties.side.user
    told = b"".join(message.data for message in parties.intruder.heard).decode()
    assert parties.other.user not in told
    assert "FARSIDE" not in told
    assert operator.refused == []


async def test_a_password_opens_one_account(parties: Parties, walled: WalledServer) -> None:
    mine, theirs = parties.side.user, parties.other.user
    for user in (theirs, OPERATOR, "scheduler"):
        async with line(walled, user, walled.passwords[mine]) as forged:
            assert b"Authorization Violation" in await forged.told(b"-ERR")
    async with line(walled, mine) as honest:
        assert b"PONG" in await honest.told(b"PONG")


async def test_no_client_library_is_needed_to_be_refused(parties: Parties, walled: WalledServer) -> None:
    """Words of the protocol that no client library would say."""
    mine, theirs = parties.side.user, parties.other.user
    for words in ({}, {"user": theirs}, {"user": OPERATOR, "pass": ""}, {"auth_token": walled.passwords[mine]}):
        async with line(walled, mine, words=words) as nameless:
            assert b"Authorization Violation" in await nameless.told(b"-ERR")
    for word in ("LMSG jobs.v1.submit.beta 2\r\nhi", "RMSG FARSIDE jobs.v1.submit.beta 2\r\nhi", "A+ FARSIDE", "LS+ >"):
        async with line(walled, mine) as server_like:
            server_like.writer.write(f"{word}\r\n".encode())
            assert b"Unknown Protocol Operation" in await server_like.told(b"-ERR")
    async with line(walled, mine) as turncoat:
        again = {"user": theirs, "pass": walled.passwords[mine], "account": theirs}
        turncoat.writer.write(b"CONNECT %s\r\n" % json.dumps(again).encode())
        turncoat.writer.write(b"SUB %s 1\r\nPING\r\n" % parties.other.says.encode())
        assert b"MSG" not in await turncoat.told(b"-ERR")


async def test_wildcards_are_no_subjects_to_speak_on(parties: Parties, operator: Principal) -> None:
    await operator.listen(">")
    before = await stored(operator)
    stem = parties.other.says.rpartition(".")[0]
    for subject in (f"{stem}.*", f"{stem}.>", ">", "*.>", f"{stem}.{parties.other.name}.x", stem):
        await parties.intruder.say(subject, MARK, reply=ANSWERS)
    await in_its_own_name(parties.intruder, parties.side.says)
    await operator.settle()
    assert {one.subject for one in await stored(operator) - before} == {parties.side.says}
    assert [message.subject for message in operator.heard if message.data == MARK] == []


async def test_the_newest_of_its_own_is_all_that_the_api_gives(parties: Parties, operator: Principal) -> None:
    """The API takes the subject out of its own: whatever the body asks for."""
    await in_its_own_name(operator, parties.side.news, OWN)
    await in_its_own_name(operator, parties.other.news, SECRET)
    stream = parties.side.reads[0]
    await parties.intruder.listen(ANSWERS)
    for body in (
        b"",
        b'{"seq":1}',
        b'{"multi_last":[">"]}',
        b'{"next_by_subj":">","batch":9}',
        b'{"last_by_subj":">"}',
    ):
        await parties.intruder.say(f"{GUEST_API}.DIRECT.GET.{stream}.{parties.side.news}", body, reply=ANSWERS)
        await parties.intruder.say(f"{GUEST_API}.DIRECT.GET.{stream}.{parties.other.news}", body, reply=ANSWERS)
        await parties.intruder.say(f"{GUEST_API}.DIRECT.GET.{stream}.>", body, reply=ANSWERS)
    await in_its_own_name(parties.intruder, parties.side.says)
    told = {message.data for message in parties.intruder.heard if message.data}
    assert told == ({OWN} if parties.side.kind == "tenant" else set())
