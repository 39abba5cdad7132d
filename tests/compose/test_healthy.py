"""The health check: what it makes of a metrics page, and that it ends as the engine expects."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typing_extensions import override

from deploy.compose import healthy
from deploy.local.ports import free_port

AGE, CONNECTED = "farside_loop_age_seconds 2.5\n", "farside_bus_connected 1.0\n"
ROWS = 'farside_outbox_rows{state="waiting"} 3.0\nfarside_outbox_rows{state="parked"} 0.0\n'
PAGE = f"# HELP farside_loop_age_seconds How long\n{AGE}{CONNECTED}{ROWS}process_cpu_seconds_total 9.0\n"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (PAGE, None),
        (PAGE.replace(AGE, "farside_loop_age_seconds 15.0\n"), "the event loop has not come round for 15 s"),
        (PAGE.replace(AGE, ""), "not started yet"),
        (PAGE.replace(CONNECTED, "farside_bus_connected 0.0\n"), "no connection to the bus"),
        (PAGE.replace(CONNECTED, ""), "no connection to the bus"),
        (PAGE.replace(ROWS, ""), "the ledger does not answer"),
    ],
)
def test_a_page_is_judged(page: str, words: str | None) -> None:
    assert healthy.fault(healthy.values(page)) == words


class Metrics(BaseHTTPRequestHandler):
    """A process that is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def probe(port: int) -> tuple[int, str]:
    command = [sys.executable, "-I", "-S", healthy.__file__]
    env = {"FARSIDE_METRICS_PORT": str(port)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_probe_asks_the_process_itself() -> None:
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert probe(server.server_port) == (0, "healthy")
        server.shutdown()
    code, words = probe(free_port())
    assert (code, words.partition(":")[0]) == (1, "no metrics")
