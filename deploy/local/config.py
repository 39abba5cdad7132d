"""What a stack keeps in its folder: ports and secrets in `stack.json` (mode 0600).

`stack.json` is also how tools find a stack: `nats_url` (the operator's), `tenants` (each with its own), `pg_dsn`
(superuser), `s3`, `nodes`, `run_dir` (with the supervisor's control socket) and `supervisor` (null when it is down).
"""

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from contracts.registry import SERVICES
from deploy.local.errors import StackError
from deploy.local.identity import Identity
from deploy.local.ports import LOOPBACK, choose_ports
from libs.bus.accounts import OPERATOR, tenant_user

DEFAULT_DIR = "var"
DIR_VARIABLE = "FARSIDE_DIR"
FORMAT = 1
BASE_LIMIT = 30
SHORT_BASE = "/tmp"  # noqa: S108 - mkdtemp makes a folder of its own in it
CONTROL_SOCKET = "control.sock"
BUCKET = "farside"
DATABASE = "farside"
SUPERUSER = "farside"
SECRETS = ("postgres", "s3-access", "s3-secret", *SERVICES)


def stack_dir(given: str | Path | None = None) -> Path:
    """The folder of the stack: as given, else FARSIDE_DIR, else `var` below the current folder; resolved."""
    return Path(given or os.environ.get(DIR_VARIABLE) or DEFAULT_DIR).expanduser().resolve()


@dataclass(frozen=True)
class Config:
    """Where everything of one stack is."""

    directory: Path
    run_dir: Path
    ports: Mapping[str, int]
    secrets: Mapping[str, str]
    nats_passwords: Mapping[str, str]

    @property
    def nats_url(self) -> str:
        """The hub, as the operator."""
        return self.bus_url(OPERATOR)

    def bus_url(self, user: str, port: str = "nats") -> str:
        """The hub (or by `port` the leaf node) as one of the users of the bus."""
        return f"nats://{user}:{self.nats_passwords[user]}@{LOOPBACK}:{self.ports[port]}"

    @property
    def pg_dsn(self) -> str:
        """Superuser on the database of the services."""
        return self._pg_dsn(DATABASE)

    @property
    def maintenance_dsn(self) -> str:
        """Superuser on the database that is there from the beginning."""
        return self._pg_dsn("postgres")

    def _pg_dsn(self, database: str) -> str:
        # sslmode is spelled out: a PGSSLMODE of the user's shell would else ask for what a loopback server has not
        server = f"{SUPERUSER}:{self.secrets['postgres']}@{LOOPBACK}:{self.ports['postgres']}"
        return f"postgresql://{server}/{database}?sslmode=disable"

    @property
    def s3_endpoint(self) -> str:
        """The S3 gateway of SeaweedFS."""
        return f"http://{LOOPBACK}:{self.ports['s3']}"

    @property
    def control_socket(self) -> Path:
        """Where the supervisor listens; short, for the paths of Unix sockets end at about 100 bytes."""
        return self.run_dir / CONTROL_SOCKET

    def log(self, part: str) -> Path:
        """The log of a part."""
        return self.directory / "logs" / f"{part}.log"

    @property
    def traces(self) -> Path:
        """Where every process writes its spans, as OTLP JSON."""
        return self.directory / "traces"

    def node_dir(self, node: str) -> Path:
        """The state of a node's agent."""
        return self.directory / "nodes" / node


def prepare_config(directory: Path, told_ports: Mapping[str, int], users: Iterable[str]) -> Config:
    """Read the folder's ports and secrets or make them, and make a runtime folder. Call it with the lock held.

    `users` are those of the bus.
    """
    kept = read_stack_file(directory) if stack_file(directory).exists() else {}
    return Config(
        directory=directory,
        run_dir=_make_run_dir(),
        ports=choose_ports(told_ports, kept.get("ports", {})),
        secrets=_secrets(SECRETS, kept.get("secrets", {})),
        nats_passwords=_secrets(users, kept.get("nats_passwords", {})),
    )


def _secrets(names: Iterable[str], kept: Mapping[str, str]) -> dict[str, str]:
    return {name: kept.get(name) or _new_secret() for name in names}


def _make_run_dir() -> Path:
    """A folder whose path is short, closed to other users."""
    usual = tempfile.gettempdir()
    base = usual if len(usual) <= BASE_LIMIT or not os.access(SHORT_BASE, os.W_OK) else SHORT_BASE
    return Path(tempfile.mkdtemp(prefix="farside-", dir=base))


def _new_secret() -> str:
    return f"s{secrets.token_hex(16)}"  # a leading letter: nats-server reads a value of digits as a number


def stack_file(directory: Path) -> Path:
    """`stack.json` of a folder."""
    return directory / "stack.json"


def read_stack_file(directory: Path) -> dict[str, Any]:
    """What `stack.json` says; StackError when there is none or it is damaged."""
    path = stack_file(directory)
    try:
        content: Any = json.loads(path.read_text())
    except FileNotFoundError:
        msg = f"there is no stack in {directory}: `farside up --dir {directory}` makes one"
        raise StackError(msg) from None
    except PermissionError:
        msg = f"{path} may not be read by this user: it holds the stack's secrets; ask as the user who started it"
        raise StackError(msg) from None
    except ValueError as error:
        msg = f"{path} is damaged ({error}): remove the folder, and the stack starts empty"
        raise StackError(msg) from None
    if not isinstance(content, dict):
        msg = f"{path} is damaged (no JSON object): remove the folder, and the stack starts empty"
        raise StackError(msg)
    facts = cast("dict[str, Any]", content)
    if facts.get("format") != FORMAT:
        msg = f"{path} has format {facts.get('format')!r}, this version reads {FORMAT}: use the version that made it"
        raise StackError(msg)
    return facts


def write_stack_file(
    config: Config, *, parts: list[str], nodes: list[str], tenants: list[str], supervisor: Identity | None
) -> None:
    """Write `stack.json` in one step, readable by its owner only."""
    content = {
        "format": FORMAT,
        "nats_url": config.nats_url,
        "tenants": {name: config.bus_url(tenant_user(name)) for name in tenants},
        "pg_dsn": config.pg_dsn,
        "s3": {
            "endpoint": config.s3_endpoint,
            "bucket": BUCKET,
            "access_key": config.secrets["s3-access"],
            "secret_key": config.secrets["s3-secret"],
        },
        "parts": parts,
        "nodes": nodes,
        "run_dir": str(config.run_dir),
        "supervisor": None if supervisor is None else vars(supervisor),
        "ports": dict(config.ports),
        "secrets": dict(config.secrets),
        "nats_passwords": dict(config.nats_passwords),
    }
    write_private(stack_file(config.directory), json.dumps(content, indent=2) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
