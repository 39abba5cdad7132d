"""A process and its telemetry: the file it holds, how it ends, collectors that answer and those that do not."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from libs.kit.settings import ServiceSettings
from libs.telemetry.errors import TelemetryError
from libs.telemetry.process import ENDED, telemetry
from libs.telemetry.spans import span
from tests.bus.traced import named, spans_in
from tests.waiting import until_sync

WORKER = """
import sys
from pathlib import Path
from libs.kit.logs import configure
from libs.kit.settings import ServiceSettings
from libs.telemetry.process import telemetry
from libs.telemetry.spans import span
configure("probe")
with telemetry("probe", ServiceSettings(), sys.argv[1] or None):
    with span("work"):
        pass
    print("worked", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def worker(node: str = "", **env: str) -> Generator[subprocess.Popen[str], None, None]:
    """A process that has done one step and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, node],
        env=os.environ | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "worked\n"
            yield process
        finally:
            process.kill()


def locked(file: Path) -> bool:
    """Whether a process holds the file."""
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_file_tells_a_living_process_from_one_that_ended_and_one_that_was_killed(tmp_path: Path) -> None:
    with worker("edge-1", FARSIDE_TRACE_DIR=str(tmp_path)) as process:
        (file,) = tmp_path.iterdir()
        assert file.name.startswith(f"probe-edge-1-{process.pid}-")
        assert locked(file)
        assert [one.name for one in spans_in(tmp_path)] == ["work"], "each span is written as it ends"
        process.communicate("\n", timeout=20)
    assert not locked(file)
    work, ended = spans_in(tmp_path)
    assert ended.name == ENDED
    assert work.resource == {
        "service.name": "probe",
        "service.instance.id": "edge-1",
        "service.version": "0.1.0",
        "process.pid": process.pid,
    }
    with worker(FARSIDE_TRACE_DIR=str(tmp_path / "killed")) as process:
        (file,) = (tmp_path / "killed").iterdir()
        assert file.name.startswith(f"probe-{process.pid}-")
        process.kill()
        process.wait(20)
        assert not locked(file)
        assert named(tmp_path / "killed", ENDED) == []


def test_the_standard_variables_are_honoured(tmp_path: Path) -> None:
    named_by = {"OTEL_SERVICE_NAME": "other", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab"}
    with worker(FARSIDE_TRACE_DIR=str(tmp_path / "a"), **named_by) as process:
        process.communicate("\n", timeout=20)
    resource = spans_in(tmp_path / "a")[0].resource
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("other", "lab")
    with worker(FARSIDE_TRACE_DIR=str(tmp_path / "b"), OTEL_SDK_DISABLED="true") as process:
        process.communicate("\n", timeout=20)
    assert not (tmp_path / "b").exists()
    with worker(FARSIDE_TRACE_DIR=str(tmp_path / "c"), OTEL_TRACES_SAMPLER="always_off") as process:
        process.communicate("\n", timeout=20)
    assert [one.name for one in spans_in(tmp_path / "c")] == [ENDED], "the end is told whatever the sampler leaves out"


@contextmanager
def collector() -> Generator[tuple[str, list[bytes]], None, None]:
    """A collector on this machine and what it was sent."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            del args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_collector_is_sent_the_same_spans(tmp_path: Path) -> None:
    with (
        collector() as (url, taken),
        worker(FARSIDE_TRACE_DIR=str(tmp_path), OTEL_EXPORTER_OTLP_ENDPOINT=url, NO_PROXY="*") as process,
    ):
        process.communicate("\n", timeout=20)
        until_sync(lambda: taken)
    request = ExportTraceServiceRequest.FromString(taken[0])
    (sent,) = request.resource_spans[0].scope_spans[0].spans
    (written,) = named(tmp_path, "work")
    assert (sent.name, sent.span_id.hex()) == ("work", written.id)


def test_pitfall_32_a_collector_that_never_answers_holds_nobody_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with worker(OTEL_EXPORTER_OTLP_ENDPOINT=url, NO_PROXY="*") as process:
            begun = time.monotonic()
            _, errors = process.communicate("\n", timeout=30)
            taken_s = time.monotonic() - begun
        assert process.returncode == 0
    assert taken_s < 10
    assert "telemetry.collector_away" in errors


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    with (
        pytest.raises(TelemetryError, match=r"spans cannot be written to .*file/probe-.*FARSIDE_TRACE_DIR"),
        telemetry("probe", ServiceSettings(trace_dir=occupied)),
    ):
        pass


def test_one_process_has_one_telemetry(tmp_path: Path) -> None:
    with telemetry("outer", ServiceSettings(trace_dir=tmp_path)):
        with telemetry("inner", ServiceSettings(trace_dir=tmp_path / "inner")), span("work"):
            pass
        with span("more"):
            pass
    assert [one.name for one in spans_in(tmp_path)] == ["work", "more", ENDED]
    assert not (tmp_path / "inner").exists()
