"""A receiver of webhooks on loopback that tests may stop, hold, and have answer as they like."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from deploy.local.ports import free_port

HOLD_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Taken:
    """A notification that came in, and what it was answered."""

    key: str
    body: dict[str, Any]
    status: int

    @property
    def about(self) -> str:
        return self.body["status"]


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@dataclass
class Receiver:
    """`with Receiver() as pager:` listens on `pager.url` until it is stopped; `start` listens on the same port again.

    `answers` are the statuses of the next answers, then 200. While `hold` is closed, what came in is kept waiting.
    """

    port: int = field(default_factory=free_port)
    answers: list[int] = field(default_factory=list[int])
    taken: list[Taken] = field(default_factory=list[Taken])
    hold: threading.Event = field(default_factory=threading.Event)
    server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?key=s3cret"

    def of(self, **labels: str) -> list[Taken]:
        """What came in about alerts with these labels, in order."""
        return [one for one in list(self.taken) if labels.items() <= one.body["commonLabels"].items()]

    def start(self) -> None:
        """Listen."""
        self.hold.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = receiver.answers.pop(0) if receiver.answers else 200
                receiver.taken.append(Taken(self.headers["Idempotency-Key"], body, status))
                receiver.hold.wait(HOLD_TIMEOUT_S)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                del format, args

        self.server = _Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        self.hold.set()
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
