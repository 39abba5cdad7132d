"""The `farside` command as tests of a running stack type it."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from libs.cli.main import cli

FARSIDE = Path(sys.executable).with_name("farside")
TALKER = "import time\nfor i in range(200):\n    print('line', i, flush=True)\n    time.sleep(0.02)\n"
SHORT_LEASE = ("FARSIDE_HEARTBEAT_S=0.5", "FARSIDE_SUSPECT_S=2.5", "FARSIDE_LEASE_S=6", "FARSIDE_LOST_S=8")
LIMIT_S = 120


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """Runs `farside` with the stack in `folder`: in this process, because starting Python anew takes longer."""

    folder: Path

    def __call__(self, *words: str | Path, stdin: str = "", tenant: str = "acme") -> Done:
        done = CliRunner().invoke(cli, [str(word) for word in words], input=stdin, env=self.env(tenant))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    def process(self, *words: str) -> Done:
        """Run `farside` in a process of its own."""
        done = subprocess.run(
            [FARSIDE, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ | self.env()
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def env(self, tenant: str = "acme") -> dict[str, str]:
        return {"FARSIDE_DIR": str(self.folder / "stack"), "FARSIDE_TENANT": tenant}

    def submit(self, name: str, **fields: object) -> str:
        """Submit a job that must be accepted; returns its id."""
        done = self("job", "submit", "-", stdin=job_file(name, **fields))
        assert done.status == 0, done.err
        return done.out.strip()


def job_file(name: str, **fields: object) -> str:
    job = {
        "name": name,
        "kind": "training",
        "command": ["python", "-c", TALKER],
        "max_runtime_s": 60,
        "stop_grace_s": 0,
    }
    return json.dumps({**job, "resources": {"cards": 1}, **fields})


@contextmanager
def running_stack(folder: Path, *parts: str) -> Generator[Shell]:
    """A local stack (of these parts only, if any are named) that notices lost nodes soon, and its shell."""
    shell = Shell(folder)
    settings = [word for pair in SHORT_LEASE for word in ("--set", pair)]
    settings += [word for part in parts for word in ("--only", part)]
    up = shell.process("up", "--detach", *settings)
    assert up.status == 0, up.err
    yield shell
    assert shell.process("down").status == 0
