"""The traces of Philly: one file for each virtual cluster in, jobs of tenants with their durations out.

A row is a job: its type, command, step argument, whether it needs data, total steps, arrival in seconds and cards.
`simulation_throughputs.json` beside the traces says how many steps a second a type of job does on a V100 with so many
cards. Where that was not measured, it is one card's rate times the cards times `SCALING`.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, NoReturn, cast

from libs.cli.errors import FileError

RATES_FILE = "simulation_throughputs.json"
CARD_TYPE = "v100"
ALONE = "null"
SCALING = 0.8
MAX_CARDS = 64
MAX_RATE = 1e12
MAX_S = 100 * 366 * 86_400
COLUMNS = ("job type", "command", "step argument", "needs data", "total steps", "arrival time", "scale factor")
SECOND_US = 1_000_000
RATE_KEY = re.compile(r"\('(?P<type>.+)', (?P<cards>[0-9]{1,9})\)")

Rates = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Job:
    """One job of the trace. `duration_us` is the time it computes on its cards; no policy but one is told of it."""

    job_id: str
    tenant: int
    cards: int
    arrival_us: int
    duration_us: int


@dataclass(frozen=True)
class Trace:
    """Tenants in order of name, jobs in order of arrival, then of tenant and row."""

    tenants: tuple[str, ...]
    jobs: tuple[Job, ...]


def read(folder: Path) -> Trace:
    """Read all `*.trace` files of the folder. Raises FileError that names file, line and field of a broken row."""
    files = sorted(folder.glob("*.trace"))
    if not files:
        msg = f"--traces {folder} holds no file that ends in .trace: name the folder with one file a virtual cluster"
        raise FileError(msg)
    rates = read_rates(folder / RATES_FILE)
    jobs = [job for tenant, file in enumerate(files) for job in _jobs(file, tenant, rates)]
    if not jobs:
        msg = f"--traces {folder}: no file that ends in .trace holds a job: name the folder with the traces themselves"
        raise FileError(msg)
    return Trace(tuple(file.stem for file in files), tuple(sorted(jobs, key=lambda job: job.arrival_us)))


def read_rates(file: Path) -> Rates:
    """Steps a second of a V100 by job type and cards. Raises FileError that names the entry at fault."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))[CARD_TYPE]
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}): durations come from it, put it beside the traces"
        raise FileError(msg) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = f"{file}: no JSON object with an entry {CARD_TYPE}: take the file that belongs to the traces"
        raise FileError(msg) from None
    if not isinstance(entries, dict):
        msg = f"{file}: {CARD_TYPE} is no object: take the file that belongs to the traces"
        raise FileError(msg)
    return dict(_rate(file, key, entry) for key, entry in cast("dict[str, Any]", entries).items())


def _rate(file: Path, key: str, entry: Any) -> tuple[tuple[str, int], float]:
    match = RATE_KEY.fullmatch(key)
    if match is None:
        msg = f"{file}: {CARD_TYPE}: key {shortened(key)} is not of the form ('job type', cards)"
        raise FileError(msg)
    rate = cast("dict[str, Any]", entry).get(ALONE) if isinstance(entry, dict) else None
    if not isinstance(rate, int | float) or not 0 < rate < MAX_RATE:
        msg = (
            f"{file}: {CARD_TYPE}: {key}: {ALONE} is {shortened(rate)}, no number of steps a second above 0, below 1e12"
        )
        raise FileError(msg)
    return (match["type"], int(match["cards"])), float(rate)


def steps_per_second(rates: Rates, job_type: str, cards: int) -> float | None:
    """The rate of a job on so many cards; None for a type that was never measured on one card."""
    measured = rates.get((job_type, cards))
    if measured is not None:
        return measured
    single = rates.get((job_type, 1))
    return None if single is None else single * cards * SCALING


def _jobs(file: Path, tenant: int, rates: Rates) -> Iterator[Job]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror})"
        raise FileError(msg) from None
    for number, line in enumerate(lines, 1):
        yield _Row(file, number, line).job(tenant, rates)


class _Row:
    """One line of a file, and the errors that name it."""

    def __init__(self, file: Path, number: int, line: bytes) -> None:
        self._file, self._number = file, number
        self._fields = line.decode("utf-8", errors="replace").split("\t")
        if len(self._fields) != len(COLUMNS):
            self._refuse(f"{len(self._fields)} fields separated by tabs where {len(COLUMNS)} belong")

    def job(self, tenant: int, rates: Rates) -> Job:
        """The job of this row."""
        cards = self._number_of("scale factor")
        if not (1 <= cards <= MAX_CARDS and cards.is_integer()):
            self._refuse(f"scale factor {self._field('scale factor')!r} is no whole number from 1 to {MAX_CARDS}")
        steps = self._number_of("total steps")
        if not (steps > 0 and steps.is_integer()):
            self._refuse(f"total steps {self._field('total steps')!r} is no whole number above 0")
        arrival_s = self._number_of("arrival time")
        if not 0 <= arrival_s <= MAX_S:
            self._refuse(f"arrival time {self._field('arrival time')!r} is not from 0 to {MAX_S} s")
        job_type = self._field("job type")
        rate = steps_per_second(rates, job_type, int(cards))
        if rate is None:
            self._refuse(f"job type {job_type!r} has no rate for one card in {RATES_FILE}")
        if steps / rate > MAX_S:
            self._refuse(f"total steps {self._field('total steps')!r} take longer than {MAX_S} s")
        return Job(
            job_id=f"{self._file.stem}-{self._number:06}",
            tenant=tenant,
            cards=int(cards),
            arrival_us=round(arrival_s * SECOND_US),
            duration_us=max(1, round(steps / rate * SECOND_US)),
        )

    def _field(self, column: str) -> str:
        return self._fields[COLUMNS.index(column)]

    def _number_of(self, column: str) -> float:
        text = self._field(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self._refuse(f"{column} {text!r} is no number")
        return value

    def _refuse(self, what: str) -> NoReturn:
        msg = f"{self._file}, line {self._number}: {what}: mend the row or take it out"
        raise FileError(msg)
