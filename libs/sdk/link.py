"""The agent's end of the socket, seen from the job: requests that survive a restart of the agent.

In: one request at a time. Out: its reply. A broken connection is made anew and the request sent again; every request of
the protocol is safe to repeat.
"""

import json
import socket
import threading
import time
from dataclasses import asdict
from typing import Any

from libs.sdk.backend import Point, SavedFile, SaveStatus
from libs.sdk.errors import LinkError, RefusedError
from libs.sdk.protocol import ATTACH, MAX_LINE_BYTES, PROGRESS, READY, SAVE, SAVES, JobInfo

RETRY_FIRST_S = 0.05
RETRY_CAP_S = 2.0
REPLY_TIMEOUT_S = 3600.0
CONNECT_TIMEOUT_S = 5.0


class Link:
    """One connection to the agent, made anew when it breaks."""

    def __init__(self, path: str, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its reply. Raises RefusedError, or LinkError after `patience_s` of silence."""
        line = json.dumps({"op": op, **fields}).encode() + b"\n"
        if len(line) > MAX_LINE_BYTES:
            msg = f"request {op!r} has {len(line)} bytes, {MAX_LINE_BYTES} are allowed: send less at a time"
            raise RefusedError(msg)
        deadline = time.monotonic() + self._patience_s
        delay_s = RETRY_FIRST_S
        while True:
            try:
                with self._lock:
                    return _checked(op, self._exchange(line))
            except (OSError, ValueError) as error:
                self._drop()
                if time.monotonic() + delay_s > deadline or self._closed.wait(delay_s):
                    msg = f"the agent at {self._path} did not answer {op!r} in {self._patience_s:g} s ({error})"
                    raise LinkError(msg) from error
                delay_s = min(RETRY_CAP_S, delay_s * 2)

    def close(self) -> None:
        """End the connection and every wait for it."""
        self._closed.set()
        self._drop()

    def _exchange(self, line: bytes) -> dict[str, Any]:
        if self._socket is None:
            self._buffer = b""
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(CONNECT_TIMEOUT_S)
            self._socket.connect(self._path)
            self._socket.settimeout(REPLY_TIMEOUT_S)
        self._socket.sendall(line)
        while b"\n" not in self._buffer:
            data = self._socket.recv(65536)
            if not data or len(self._buffer) > MAX_LINE_BYTES:
                msg = "the connection ended"
                raise ConnectionError(msg)
            self._buffer += data
        reply, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(reply)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _checked(op: str, reply: dict[str, Any]) -> dict[str, Any]:
    if not reply.get("ok"):
        msg = f"the agent refused {op!r}: {reply.get('error', 'no reason given')}"
        raise RefusedError(msg)
    return reply


class AgentBackend:
    """A job under an agent. Progress has a connection of its own, so that a long save does not hold it up.

    That one does not send again by itself: after a break the reporter begins with the oldest point that is not kept.
    """

    def __init__(self, path: str, patience_s: float) -> None:
        self._calls = Link(path, patience_s)
        self._reports = Link(path, 0.0)
        self._info = JobInfo.from_json(self._calls.ask(ATTACH))

    @property
    def info(self) -> JobInfo:
        """What the task may know of its job."""
        return self._info

    def progress(self, points: list[Point], *, flush: bool) -> int:
        """Hand points over; the newest serial that is kept for good."""
        reply = self._reports.ask(PROGRESS, points=[asdict(point) for point in points], flush=flush)
        return int(reply["serial"])

    def save(self, saved: SavedFile) -> None:
        """Hand a checkpoint file over; returns when the agent has noted it down."""
        self._calls.ask(SAVE, **asdict(saved))

    def saves(self, wait_s: float) -> SaveStatus:
        """How saves stand, once none is pending or `wait_s` have passed."""
        reply = self._calls.ask(SAVES, wait_s=wait_s)
        return SaveStatus(tuple(reply["pending"]), reply["saved"])

    def ready(self, endpoint: str) -> None:
        """Say that the job serves at `endpoint`."""
        self._calls.ask(READY, endpoint=endpoint)

    def close(self) -> None:
        """End both connections."""
        self._reports.close()
        self._calls.close()
