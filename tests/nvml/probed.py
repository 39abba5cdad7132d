"""Asks the process that probes."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.health import CardHealth
from contracts.nodes import Card

ROOT = Path(__file__).parents[2]


@dataclass
class Probed:
    """The process, one question at a time."""

    process: subprocess.Popen[str]

    def look(self) -> tuple[list[Card], list[CardHealth]]:
        """What was announced at the start, and how the cards fare now."""
        said = self.ask("look")
        return [Card(**card) for card in said["cards"]], [CardHealth(**card) for card in said["health"]]

    def ask(self, word: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the probe ended with {self.process.wait(10)}"
        return json.loads(line)


@contextmanager
def probed(env: Mapping[str, str]) -> Generator[Probed, None, None]:
    command = [sys.executable, "-m", "tests.nvml.child"]
    with subprocess.Popen(
        command, cwd=ROOT, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Probed(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
