"""An HTTP proxy in front of an S3 store: the place where tests lose answers, cut bodies and hold requests.

A fault names a method and a part of the path with query, and is used up by the first request that matches. A gate
holds matching requests, before the store sees them or after it has answered, until it is opened.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self
from urllib.parse import unquote

GATE_TIMEOUT_S = 120.0
CONNECTION_HEADERS = frozenset({"expect", "connection", "transfer-encoding"})


@dataclass(frozen=True)
class Faults:
    """One fault: what it hits and what it does."""

    method: str
    path_part: str
    kind: Literal["lose", "answer", "cut", "flip"]
    status: int = 0
    code: str = ""
    after_bytes: int = 0
    header: str = ""

    @classmethod
    def lose_answer(cls, method: str, path_part: str) -> Self:
        """The store does it; the caller sees its connection closed."""
        return cls(method, path_part, "lose")

    @classmethod
    def answer(cls, method: str, path_part: str, status: int, code: str, header: str = "") -> Self:
        """The store never sees it; the caller gets this. With `header`, only a request that carries it is hit."""
        return cls(method, path_part, "answer", status=status, code=code, header=header)

    @classmethod
    def cut_body(cls, method: str, path_part: str, after_bytes: int) -> Self:
        """The answer's body ends too early."""
        return cls(method, path_part, "cut", after_bytes=after_bytes)

    @classmethod
    def flip_body(cls, method: str, path_part: str) -> Self:
        """Every byte of the answer's body is another one."""
        return cls(method, path_part, "flip")


@dataclass
class Gate:
    """Holds requests that match; `reached` is set when the first one stands at it. `once`: later ones pass."""

    method: str
    path_part: str
    side: Literal["before", "after"]
    once: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def open(self) -> None:
        """Let everything pass from now on."""
        self.opened.set()

    def stand(self) -> None:
        """Wait here until the gate is opened."""
        if self.once and self.reached.is_set():
            return
        self.reached.set()
        self.opened.wait(GATE_TIMEOUT_S)


@dataclass(frozen=True)
class Seen:
    """A request that came by."""

    method: str
    path: str
    headers: tuple[str, ...]

    def __contains__(self, header: str) -> bool:
        return header.lower() in self.headers


class S3Proxy:
    """The proxy; a context manager."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.faults: list[Faults] = []
        self.gates: list[Gate] = []
        self.away = False
        self.broken: list[str] = []
        self._answered: list[Seen] = []
        self.on_fault: Callable[[], object] = lambda: None
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def gate(self, method: str, path_part: str, side: Literal["before", "after"], *, once: bool = False) -> Gate:
        """Hold requests of `method` whose path has `path_part`, or only the first of them."""
        made = Gate(method, path_part, side, once)
        self.gates.append(made)
        return made

    def requests(self, method: str, path_part: str) -> list[Seen]:
        """What came by so far."""
        return [seen for seen in self._seen if seen.method == method and path_part in seen.path]

    def answered(self, method: str, path_part: str) -> list[Seen]:
        """What the store has answered so far."""
        return [seen for seen in self._answered if seen.method == method and path_part in seen.path]

    def answer(self, seen: Seen) -> None:
        """Remember that the store has answered."""
        self._answered.append(seen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for gate in self.gates:
            gate.open()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, seen: Seen) -> Faults | None:
        """The fault for this request, used up."""
        with self._lock:
            for fault in self.faults:
                hit = fault.method == seen.method and fault.path_part in seen.path
                if hit and (not fault.header or fault.header in seen):
                    self.faults.remove(fault)
                    return fault
        return None

    def hold(self, method: str, path: str, side: Literal["before", "after"]) -> None:
        """Stand at every gate that matches."""
        for gate in self.gates:
            if gate.side == side and gate.method == method and gate.path_part in path:
                gate.stand()

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> "Answer":
        """Ask the store."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target_port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in CONNECTION_HEADERS:
                    connection.putheader(name, value)
            connection.endheaders(body)
            reply = connection.getresponse()
            return Answer(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def see(self, method: str, path: str, headers: dict[str, str]) -> Seen:
        """Remember a request."""
        seen = Seen(method, path, tuple(name.lower() for name in headers))
        self._seen.append(seen)
        return seen

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        return Handler


@dataclass(frozen=True)
class Answer:
    """What the store said."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: S3Proxy

    def _serve(self) -> None:
        proxy, method, path = self.owner, self.command, unquote(self.path)
        headers = dict(self.headers.items())
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        seen = proxy.see(method, path, headers)
        if proxy.away:
            self.close_connection = True
            return
        proxy.hold(method, path, "before")
        fault = proxy.take(seen)
        if method == "GET" and any(part in path for part in proxy.broken):
            self._send(Answer(500, {}, _error("InternalError")))
            return
        if fault is not None and fault.kind == "answer":
            self._send(Answer(fault.status, {}, _error(fault.code)))
            return
        try:
            answer = proxy.forward(method, self.path, headers, body)
        except OSError:
            self.close_connection = True
            return
        proxy.answer(seen)
        proxy.hold(method, path, "after")
        if fault is None:
            self._send(answer)
        else:
            self._spoil(fault, answer)

    def _spoil(self, fault: Faults, answer: Answer) -> None:
        self.owner.on_fault()
        if fault.kind == "flip":
            self._send(Answer(answer.status, answer.headers, bytes(byte ^ 1 for byte in answer.body)))
            return
        self.close_connection = True
        if fault.kind == "cut":
            self._send(answer, upto=fault.after_bytes)

    def _send(self, answer: Answer, upto: int | None = None) -> None:
        try:
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in {*CONNECTION_HEADERS, "content-length"}:
                    self.send_header(name, value)
            length = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body[:upto])
        except OSError:
            self.close_connection = True  # the caller is gone, killed perhaps

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


def _error(code: str) -> bytes:
    if not code:
        return b""
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>'.encode()
