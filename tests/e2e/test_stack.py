"""The local stack: it comes up, keeps itself up, keeps its data, and leaves nothing behind in whatever way it ends.

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
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from nats.js.api import StreamConfig
from pydantic import SecretStr

from deploy.local import keeper, leftovers
from deploy.local.config import read_stack_file
from deploy.local.errors import PartFailedError, StackError
from deploy.local.part import PartState
from deploy.local.ports import choose_ports
from deploy.local.process import Command
from deploy.local.stack import Stack
from deploy.local.users import OsUser
from libs.bus.client import Client
from libs.db import connect_once
from libs.objects.model import StoreConfig
from libs.objects.store import Store
from tests.waiting import until, until_sync

REPOSITORY = Path(__file__).parents[2]
LIGHT = ("postgres", "nats")
SERVERS = ("postgres", "nats", "leaf", "seaweed")
UP_S = 60.0


def using(directory: Path) -> dict[int, str]:
    """Processes that have anything to do with a stack's folder, besides this one."""
    found: dict[int, str] = {}
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.cwd(), *process.environ().values()]
            words += [file.path for file in process.open_files()]
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if process.pid != os.getpid() and any(str(directory) in word for word in words):
            found[process.pid] = " ".join(process.cmdline()) or process.name()
    return found


async def nothing_left(directory: Path) -> None:
    await until(lambda: not using(directory), 20, f"no process of {directory}; there are {using(directory)}")


def farside(*words: str, directory: Path, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, as a shell would start it."""
    command = [sys.executable, "-m", "deploy.local.cli", words[0], "--dir", str(directory), *words[1:]]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run(*words: str, directory: Path, **options: Any) -> tuple[int, str, str]:
    """The same, awaited: exit status, standard output, standard error."""
    process = farside(*words, directory=directory, **options)
    out, err = process.communicate(timeout=UP_S)
    return process.returncode, out, err


def only(*parts: str) -> list[str]:
    return [word for part in parts for word in ("--only", part)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, as closed to other users as mkdtemp makes it."""
    path = Path(tempfile.mkdtemp(prefix="fs-"))
    yield path
    for pid in using(path):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(path)


async def test_up_status_and_down_from_the_command_line(home: Path) -> None:
    code, _, err = run("up", "--detach", *only(*SERVERS, "provision"), directory=home)
    assert code == 0, err
    assert [line.split()[:2] for line in err.splitlines()[:1]] == [["nats", "up"]]
    assert {line.split()[0] for line in err.splitlines()[:-1]} == {*SERVERS, "provision"}
    assert err.splitlines()[-1].startswith(f"the stack in {home} is up after ")

    code, out, err = run("status", "--json", directory=home)
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(out)["parts"]}
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
    async with await Client.connect(stack.config.leaf_url, name="test", domain="hub") as client:
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
        assert one.config.secrets["nats"] != two.config.secrets["nats"]
        for stack in (one, two):
            async with await Client.connect(stack.config.nats_url, name="test"):
                pass
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


@pytest.mark.parametrize("moment", ["stack.json", "logs/nats.log", "logs/postgres.log", "logs/seaweed.log"])
async def test_ctrl_c_during_the_start_leaves_nothing(home: Path, moment: str) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    until_sync((home / moment).exists, 30, moment)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "taking everything down" in err) == (130, True), err
    await nothing_left(home)
    assert read_stack_file(home)["supervisor"] is None


async def test_ctrl_c_when_it_is_up_is_an_orderly_end(home: Path) -> None:
    process = farside("up", *only(*LIGHT), directory=home)
    _read_until(process, "is up after")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "down; the data stays" in err) == (0, True), err
    await nothing_left(home)


async def test_sigkill_of_the_supervisor_takes_parts_and_attempts_along(home: Path) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    _read_until(process, "is up after")
    attempt = _pretend_attempt(home)
    process.kill()
    process.communicate(timeout=30)
    await nothing_left(home)
    assert attempt.wait(10) == -signal.SIGKILL
    run_dir = Path(read_stack_file(home)["run_dir"])
    await until(lambda: not run_dir.exists(), 10)
    async with Stack(home, parts=SERVERS):
        pass


def _read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return
    pytest.fail(f"never said {words!r}: {lines}")


def _pretend_attempt(home: Path) -> subprocess.Popen[bytes]:
    """A task that ignores SIGTERM, as an agent would have left it."""
    marked = {**os.environ, leftovers.MARK: str(home / "nodes" / "central-1" / "attempts" / "job" / "1-0")}
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    task = subprocess.Popen([sys.executable, "-c", code], env=marked, stdout=subprocess.PIPE, start_new_session=True)
    assert task.stdout is not None
    task.stdout.readline()
    task.stdout.close()
    return task


async def test_an_orderly_end_ends_attempts_whose_agents_have_gone(home: Path) -> None:
    attempt = _pretend_attempt(home)
    assert len(leftovers.find(home)) == 1
    assert leftovers.end(home) == 1
    assert attempt.wait(10) == -signal.SIGKILL
    assert not leftovers.find(home)


async def test_a_part_that_does_not_come_up_shows_its_log_and_takes_the_rest_down(home: Path) -> None:
    async with Stack(home, parts=LIGHT):
        pass
    (home / "postgres" / "data" / "postgresql.conf").write_text("nonsense_setting = 7\n")
    with pytest.raises(PartFailedError, match="postgres did not come up: ended with exit code 1") as failure:
        await Stack(home, parts=SERVERS).start()
    assert "nonsense_setting" in str(failure.value)
    await nothing_left(home)
    code, _, err = run("up", "--detach", *only(*LIGHT), directory=home)
    assert code == 1
    assert "farside: postgres did not come up" in err
    assert "nonsense_setting" in err
    await nothing_left(home)


async def test_a_fixed_port_that_is_taken_is_named(home: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        code, _, err = run("up", *only("nats"), "--port", f"nats={port}", directory=home)
    assert code == 1
    assert f"port {port} for nats is taken" in err
    await nothing_left(home)


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
            await until(lambda part=part, first=first: _pid(stack, part) not in (None, first), 30, f"{part} again")
            await until(lambda part=part: _state(stack, part) is PartState.UP, 30, f"{part} up again")
        assert {status.restarts for status in stack.status()} == {1}
        await _write_everywhere(stack)
    assert sum("ended by SIGKILL; starts again in 0.2 s" in line for line in said) == len(SERVERS)


def _pid(stack: Stack, part: str) -> int | None:
    return next(status.pid for status in stack.status() if status.name == part)


def _state(stack: Stack, part: str) -> PartState:
    return next(status.state for status in stack.status() if status.name == part)


async def test_a_held_part_stays_down_until_it_is_released(home: Path) -> None:
    async with Stack(home, parts=LIGHT) as stack:
        stack.hold("nats")
        os.kill(stack.pid("nats"), signal.SIGKILL)
        await until(lambda: _state(stack, "nats") is PartState.HELD, 10)
        with pytest.raises(StackError, match="nats does not run: it is held"):
            stack.pid("nats")
        stack.release("nats")
        await until(lambda: _state(stack, "nats") is PartState.UP, 10)
        await stack.stop_part("nats")
        await until(lambda: _state(stack, "nats") is PartState.HELD, 10)
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
    _, out, err = run("status", "--json", directory=home)
    assert out, err
    return {row["name"]: row["state"] for row in json.loads(out)["parts"]}


async def test_proxies_and_credentials_of_the_shell_do_not_reach_the_stack(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name, value in {"PGHOST": "/nowhere", "PGSSLMODE": "require", "AWS_ACCESS_KEY_ID": "foreign"}.items():
        monkeypatch.setenv(name, value)
    async with Stack(home, parts=SERVERS):
        pass


async def test_a_killed_supervisor_is_waited_for(home: Path) -> None:
    """Whoever starts next waits until the reaper of the last one is done."""
    process = farside("up", *only(*LIGHT), directory=home)
    _read_until(process, "is up after")
    attempt = _pretend_attempt(home)
    process.kill()
    process.communicate(timeout=10)
    async with Stack(home, parts=LIGHT):
        assert attempt.wait(1) == -signal.SIGKILL


async def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(StackError, match="cannot be kept in /proc/farside"):
        await Stack("/proc/farside", parts=LIGHT).start()


@pytest.mark.parametrize("moment", ["stack.json", "logs/nats.log", "logs/postgres.log", "logs/seaweed.log"])
async def test_sigkill_during_the_start_leaves_nothing(home: Path, moment: str) -> None:
    process = farside("up", *only(*SERVERS), directory=home)
    until_sync((home / moment).exists, 30, moment)
    process.kill()
    process.communicate(timeout=30)
    await nothing_left(home)
    async with Stack(home, parts=SERVERS):
        pass


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


def _run_as(user: OsUser | None, argv: list[str]) -> None:
    launched = Command(argv, dict(os.environ), user=user).launched()
    done = subprocess.run(launched, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=UP_S)
    assert done.returncode == 0, done.stderr
