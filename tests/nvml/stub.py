"""Builds the stand-in for libnvidia-ml and says what it answers.

In: cards as dictionaries of the stub's names. Out: an environment in which `nvidia-ml-py` finds the stub by the usual
name, and a file that may be written anew while the process under test runs.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("stub.c")
LIBRARY = "libnvidia-ml.so.1"
GPU_IS_LOST, RESET_REQUIRED, FUNCTION_NOT_FOUND, UNKNOWN_ERROR = 15, 16, 13, 999
XID_EVENTS = 0x8

Values = Mapping[str, int | str]

H200: dict[str, int | str] = {
    "name": "NVIDIA H200",
    "memory.total": 141 << 30,
    "memory.used": 3 << 30,
    "utilisation": 40,
    "temperature": 51,
    "power": 312_500,
    "power.limit": 700_000,
    "energy": 9_876_543,
    "ecc.corrected": 0,
    "ecc.uncorrected": 0,
    "ecc.corrected.total": 7,
    "ecc.uncorrected.total": 0,
    "remapped.corrected": 1,
    "remapped.uncorrected": 0,
    "remapped.pending": 0,
    "remapped.failed": 0,
    "clocks": 0x4,
    "mig": 0,
    "field.38": 0,
    "field.45": 0,
    "field.230": 0,
    "events": XID_EVENTS,
}
V100: dict[str, int | str] = {
    "name": "Tesla V100-SXM2-32GB",
    "memory.total": 32 << 30,
    "utilisation": 0,
    "temperature": 35,
    "power": 45_000,
    "ecc.corrected": 0,
    "ecc.uncorrected": 2,
    "retired.single": 3,
    "retired.double": 1,
    "retired.pending": 1,
    "clocks": 0,
    "events": XID_EVENTS,
}


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def build(folder: Path, *, old: bool = False) -> Path:
    """Compile the stub into `folder`; with `old` one that lacks what drivers of 2019 lacked."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for libnvidia-ml is compiled by cc, which is not here: install a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}", *(["-DOLD"] if old else [])]
    subprocess.run([compiler, *flags, "-o", str(folder / LIBRARY), str(SOURCE)], check=True)
    return folder


class Stub:
    """What the compiled stub answers from now on."""

    def __init__(self, library: Path, state: Path, cards: list[Values]) -> None:
        self._library = library
        self._state = state
        self._xids: list[tuple[int, int]] = []
        self.general: dict[str, int | str] = {}
        self.cards = [{"uuid": uuid(index), **card} for index, card in enumerate(cards)]
        self.write()

    def write(self) -> None:
        """Say so; what is being read meanwhile is the old or the new, never half of it."""
        general = {"cards": len(self.cards), **self.general}
        lines = [f"- {name} {value}" for name, value in general.items()]
        lines += [f"- xid {index} {code}" for index, code in self._xids]
        lines += [f"{index} {name} {value}" for index, card in enumerate(self.cards) for name, value in card.items()]
        fresh = self._state.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self._state)

    def xid(self, index: int, code: int) -> None:
        """A card shows an XID."""
        self._xids.append((index, code))
        self.write()

    def forget_xids(self) -> None:
        """Those who begin to listen now hear nothing of what was before."""
        self._xids.clear()
        self.write()

    def change(self, index: int, **values: int | str) -> None:
        """`remapped_pending=1` stands for the stub's name `remapped.pending`."""
        self.cards[index] |= {name.replace("_", "."): value for name, value in values.items()}
        self.write()

    def fails(self, index: int, code: int, function: str | None = None) -> None:
        """From now on a card answers with an error, to every question or to one."""
        self.cards[index]["fail" if function is None else f"fail.{function}"] = code
        self.write()

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process that finds the stub."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self._library), "FARSIDE_NVML_STUB": str(self._state)}
