"""A proxy in front of the object store, where the demo makes a checkpoint fail: writes under a prefix are refused.

It passes a request on as it came, `Host` included, since the signature covers it. While `refuse` is in force, a PUT to
a key that begins with its prefix gets 503 and never reaches the store; `mend` ends that.
"""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from deploy.local.ports import LOOPBACK

TIMEOUT_S = 60.0
BUSY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>refused by the demo</Message></Error>'
OF_ONE_HOP = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


class StoreProxy:
    """Listens on a free loopback port; a context manager."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.refused = 0
        self._prefix: str | None = None
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="store-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        """The address for S3 clients."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refuse(self, bucket: str, prefix: str) -> None:
        """Refuse writes of objects whose key begins with `prefix`."""
        self._prefix = f"/{bucket}/{prefix}"

    def mend(self) -> None:
        """Refuse nothing any more."""
        self._prefix = None

    def refuses(self, method: str, path: str) -> bool:
        """Whether this request is refused now; counts those that are."""
        hit = method == "PUT" and self._prefix is not None and unquote(path).startswith(self._prefix)
        self.refused += hit
        return hit

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: StoreProxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.owner.refuses(self.command, self.path):
            self._answer(503, {}, BUSY)
            return
        try:
            self._pass_on(body)
        except OSError:
            self.close_connection = True

    def _pass_on(self, body: bytes) -> None:
        store = http.client.HTTPConnection(LOOPBACK, self.owner.target_port, timeout=TIMEOUT_S)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in OF_ONE_HOP:
                    store.putheader(name, value)
            store.endheaders(body)
            reply = store.getresponse()
            self._answer(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            store.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        for name, value in headers.items():
            if name.lower() not in {*OF_ONE_HOP, "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""
