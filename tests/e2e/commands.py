"""Words for tests of the local stack: its command line in a process of its own, and what must not be left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local import leftovers
from deploy.local.part import PartStatus
from deploy.local.stack import Stack
from tests.waiting import until

REPOSITORY = Path(__file__).parents[2]
LIGHT = ("postgres", "nats")
SERVERS = ("postgres", "nats", "leaf", "seaweed")
UP_S = 60.0


def using(directory: Path) -> dict[int, str]:
    """Processes that have anything to do with a stack's folder, besides this one."""
    found: dict[int, str] = {}
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            words = [*command, process.cwd(), *process.environ().values()]
            words += [file.path for file in process.open_files()]
            name = " ".join(command) or process.name()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if process.pid != os.getpid() and any(str(directory) in word for word in words):
            found[process.pid] = name
    return found


async def nothing_left(directory: Path) -> None:
    await until(lambda: not using(directory), 20, f"no process of {directory}; there are {using(directory)}")


def farside(*words: str, directory: Path, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, as a shell would start it."""
    command = [sys.executable, "-m", "deploy.local.cli", words[0], "--dir", str(directory), *words[1:]]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run(*words: str, directory: Path, **options: Any) -> tuple[int, str, str]:
    """The same, awaited: exit status, standard output, standard error."""
    process = farside(*words, directory=directory, **options)
    out, err = process.communicate(timeout=UP_S)
    return process.returncode, out, err


def only(*parts: str) -> list[str]:
    return [word for part in parts for word in ("--only", part)]


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return
    pytest.fail(f"never said {words!r}: {lines}")


def pretend_attempt(home: Path) -> subprocess.Popen[bytes]:
    """A task that ignores SIGTERM, as an agent would have left it."""
    marked = {**os.environ, leftovers.MARK: str(home / "nodes" / "central-1" / "attempts" / "job" / "1-0")}
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    task = subprocess.Popen([sys.executable, "-c", code], env=marked, stdout=subprocess.PIPE, start_new_session=True)
    assert task.stdout is not None
    task.stdout.readline()
    task.stdout.close()
    return task


def rows_of(home: Path) -> dict[str, dict[str, Any]]:
    code, out, err = run("status", "--json", directory=home)
    assert code == 0, err
    return {row["name"]: row for row in json.loads(out)["parts"]}


def status_of(stack: Stack, part: str) -> PartStatus:
    return next(status for status in stack.status() if status.name == part)
