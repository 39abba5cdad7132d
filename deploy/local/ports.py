"""Ports of the loopback: free ones unless told, the same ones at the next start where they are still free.

They are chosen below the range from which systems take the local ends of outgoing connections: a part that is
restarted must find its port free.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from contracts.registry import SERVICES
from deploy.local.errors import StackError
from deploy.local.fleet import NODES

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20000, 31999
TRIES = 200
SOCKETS = Path("/tmp")  # noqa: S108 - where SeaweedFS puts its sockets, whatever TMPDIR says
_GIVEN: set[int] = set()


def metrics_port(part: str) -> str:
    """The name of the port at which a service or an agent shows its metrics."""
    return f"{part}-metrics"


PORTS = (
    "nats",
    "nats-monitor",
    "nats-leafnodes",
    "leaf",
    "leaf-monitor",
    "postgres",
    "s3",
    "s3-grpc",
    "seaweed-master",
    "seaweed-master-grpc",
    "seaweed-volume",
    "seaweed-volume-grpc",
    "seaweed-filer",
    "seaweed-filer-grpc",
    *(metrics_port(part) for part in (*SERVICES, *(node.name for node in NODES))),
)


def choose_ports(told: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, int]:
    """A port for each name of PORTS: `told` as it is (StackError when taken), `kept` where free, else a free one."""
    unknown = sorted(set(told) - set(PORTS))
    if unknown:
        msg = f"no port is named {unknown[0]!r}: the names are {', '.join(PORTS)}"
        raise StackError(msg)
    with contextlib.ExitStack() as held:
        chosen = {name: _hold_told(held, name, port) for name, port in told.items()}
        for name in PORTS:
            if name not in chosen:
                chosen[name] = next(port for port in _candidates(kept.get(name)) if _hold(held, port))
    return {name: chosen[name] for name in PORTS}


def free_port() -> int:
    """A port that is free now, in the range where no outgoing connection begins, and never given before here."""
    port = next(port for port in _candidates(None) if port not in _GIVEN and is_free(port))
    _GIVEN.add(port)
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback at `port` now."""
    with contextlib.ExitStack() as held:
        return _hold(held, port)


def _hold_told(held: contextlib.ExitStack, name: str, port: int) -> int:
    if not _hold(held, port):
        msg = f"port {port} for {name} is taken: end what listens there, or leave out --port {name}={port}"
        raise StackError(msg)
    return port


def _candidates(kept: int | None) -> Iterator[int]:
    if kept is not None:
        yield kept
    for _ in range(TRIES):
        yield FIRST + secrets.randbelow(LAST - FIRST + 1)
    msg = f"found no free port between {FIRST} and {LAST} in {TRIES} tries: name free ones with --port NAME=NUMBER"
    raise StackError(msg)


def _blocked(port: int) -> bool:
    """Whether another user's SeaweedFS, killed once, left a socket of this port that ours could not take away."""
    user = os.geteuid()
    if user == 0:
        return False
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_uid != user for path in SOCKETS.glob(f"seaweedfs-*-{port}.sock"))
    return False


def _hold(held: contextlib.ExitStack, port: int) -> bool:
    if _blocked(port):
        return False
    probe = held.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
        probe.listen(1)
    except OSError:
        return False
    return True
