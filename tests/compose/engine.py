"""A container engine with Compose: whether there is one, and one stack of docker-compose.yml on it.

`FARSIDE_COMPOSE` names the Compose to use where there are several, such as `docker-compose` for 1.29.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAIN_FILE = "docker-compose.yml"
STAND_INS = "deploy/stand-ins/compose.yml"
LABEL = "com.docker.compose.project"
OFFICIAL = "nats:2.15.1"
COMPOSES = ("docker compose", "docker-compose")
PROBE_S = 20.0
PULL_S = 120.0
COMMAND_S = 900.0
TOLD_CHARS = 6000


class EngineError(Exception):
    """A command failed; the message has its last words."""


def run(*command: str, env: Mapping[str, str] | None = None, timeout_s: float = COMMAND_S) -> str:
    """The standard output of a command; EngineError when it fails."""
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        msg = f"{shlex.join(command)}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-TOLD_CHARS:]}"
        raise EngineError(msg)
    return done.stdout.strip()


def works(*command: str, timeout_s: float = PROBE_S) -> bool:
    """Whether a command succeeds in time."""
    try:
        run(*command, timeout_s=timeout_s)
    except (OSError, EngineError, subprocess.TimeoutExpired):
        return False
    return True


@cache
def composes() -> tuple[tuple[str, ...], ...]:
    """Every Compose of this machine, the one to use first."""
    told = os.environ.get("FARSIDE_COMPOSE")
    words = (tuple(shlex.split(name)) for name in ((told,) if told else COMPOSES))
    return tuple(command for command in words if works(*command, "version"))


@cache
def missing() -> str | None:
    """Why no stack can be started here; None when it can."""
    if shutil.which("docker") is None:
        return "no docker on PATH"
    if not works("docker", "info"):
        return f"no container engine answers at {os.environ.get('DOCKER_HOST', 'the usual socket')}"
    return None if composes() else "no Compose: neither `docker compose` nor `docker-compose`"


@cache
def has_registry() -> bool:
    """Whether the servers' official images can be had."""
    return works("docker", "image", "inspect", OFFICIAL) or works("docker", "pull", OFFICIAL, timeout_s=PULL_S)


def say(line: str) -> None:
    """Tell whoever watches (`pytest -s`)."""
    sys.stderr.write(f"  {line}\n")


@dataclass(frozen=True)
class Composed:
    """One stack, by the name of its project; `env_file` has its secrets, ports and timings."""

    project: str
    env_file: Path
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    def compose(self, *arguments: str) -> str:
        """Run Compose on this stack."""
        files = [MAIN_FILE] if has_registry() else [MAIN_FILE, STAND_INS]
        chosen = [word for file in files for word in ("-f", file)]
        return run(*composes()[0], "--env-file", str(self.env_file), "-p", self.project, *chosen, *arguments)

    def container(self, service: str) -> str:
        """The id of a service's container, running or not."""
        found = run("docker", "ps", "--all", "--quiet", "--no-trunc", *self._of(), *self._of_service(service))
        return found.splitlines()[0]

    def inside(self, service: str, *command: str) -> str:
        """Run a command in a service's container."""
        return run("docker", "exec", self.container(service), *command)

    def cli(self, *arguments: str) -> str:
        """What the command line says, run in a container beside the stack."""
        return self.compose("run", "--rm", "-T", "cli", *arguments)

    def kill(self, service: str) -> None:
        """SIGKILL to all that runs in a service's container."""
        run("docker", "kill", self.container(service))

    def start(self, service: str) -> None:
        """Start a service's container again."""
        run("docker", "start", self.container(service))

    def health(self) -> Iterator[tuple[str, str, int]]:
        """Each container with its health, as far as its image knows of one, and its exit status."""
        words = '{{index .Config.Labels "com.docker.compose.service"}} {{with .State.Health}}{{.Status}}{{end}} '
        words += "{{.State.ExitCode}}"
        ids = run("docker", "ps", "--all", "--quiet", *self._of()).split()
        for line in run("docker", "inspect", "--format", words, *ids).splitlines():
            service, health, code = line.split(" ")
            yield service, health, int(code)

    def leftovers(self) -> list[str]:
        """What of the stack is still there: containers, networks, volumes."""
        kinds = (["ps", "--all"], ["network", "ls"], ["volume", "ls"])
        return [found for kind in kinds for found in run("docker", *kind, "--quiet", *self._of()).split()]

    def _of(self) -> tuple[str, str]:
        return ("--filter", f"label={LABEL}={self.project}")

    @staticmethod
    def _of_service(service: str) -> tuple[str, str]:
        return ("--filter", f"label=com.docker.compose.service={service}")
