"""Fixtures of the tests in containers: one stack, built, started, and taken down whatever happens."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.ports import free_port
from tests.compose.engine import ROOT, Composed, missing, run, say, works

REQUIRED = "FARSIDE_ENGINE_REQUIRED"
# The order of events is that of leases of minutes; the margins are those of a machine that has other things to do.
TIMINGS = {
    "FARSIDE_HEARTBEAT_S": "0.5",
    "FARSIDE_SUSPECT_S": "10",
    "FARSIDE_LEASE_S": "40",
    "FARSIDE_LOST_S": "45",
    "FARSIDE_USAGE_PERIOD_S": "2",
    "FARSIDE_METERING_RECONCILE_S": "1",
}


@pytest.fixture(scope="session")
def engine() -> None:
    """Skips where no container engine is reached, or fails where one is required."""
    why = missing()
    if why is not None and os.environ.get(REQUIRED):
        pytest.fail(f"{why}: start an engine, or set DOCKER_HOST to the one that runs")
    if why is not None:
        pytest.skip(f"{why}: DOCKER_HOST names the engine to use")
    if not works("docker", "buildx", "version"):
        os.environ.setdefault("DOCKER_BUILDKIT", "0")  # an engine without BuildKit still has its own builder


def make_env(file: Path, settings: dict[str, str]) -> dict[str, str]:
    """An environment file with these settings and fresh secrets; all that it says."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    run(sys.executable, str(ROOT / "deploy" / "compose" / "make_env.py"), str(file))
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@pytest.fixture(scope="module")
def stack(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The stack of docker-compose.yml, up."""
    del engine
    file = tmp_path_factory.mktemp("compose") / ".env"
    ports = {"FARSIDE_NATS_PORT": str(free_port()), "FARSIDE_S3_PORT": str(free_port())}
    project = f"farside-test-{os.getpid()}"
    composed = Composed(project, file, make_env(file, {**ports, **TIMINGS, "FARSIDE_TAG": "test"}))
    say("building the images")
    composed.compose("build")
    try:
        say(f"starting {project}")
        composed.compose("up", "--detach", "--no-build")
        yield composed
    finally:
        say("taking everything down")
        composed.compose("down", "--volumes", "--remove-orphans", "--timeout", "3")
    assert composed.leftovers() == []
