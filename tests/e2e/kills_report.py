"""How long each killed part took to come back, measured and told, and never a reason for a test to fail."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel

from contracts import registry
from libs.bus import Event
from tests.e2e.fleet import TENANT, Fleet
from tests.e2e.kills_checks import EVENTS_LIMIT
from tests.e2e.kills_load import Load
from tests.e2e.kills_parts import AGENTS, EFFECTS, Kill

HEADER = ("PART", "UP", "FIRST EFFECT", "AFTER", "NEXT JOB ENDED")


class Recovery(BaseModel):
    """Seconds from a SIGKILL until the part answered again, had a new effect, and the job submitted next had ended."""

    part: str
    up_s: float
    effect: str
    effect_s: float | None
    next_job_s: float | None


class Report(BaseModel):
    """One run; `job_s` is how long a job of the load takes at the median, from its publish to its end."""

    seed: int
    submits: int
    repeats: int
    unacknowledged: int
    job_s: float
    recoveries: list[Recovery]

    def table(self) -> str:
        """The same for people."""
        rows = [
            (each.part, f"{each.up_s:.1f} s", each.effect, _seconds(each.effect_s), _seconds(each.next_job_s))
            for each in self.recoveries
        ]
        widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (HEADER, *rows)]
        told = (
            f"{self.submits} submits, {self.repeats} published again, {self.unacknowledged} without a PubAck at first"
        )
        return "\n".join([f"seed {self.seed}: {told}; a job takes {self.job_s:.1f} s", *lines])

    def write(self, path: Path) -> None:
        """Keep it as JSON."""
        path.write_text(json.dumps(self.model_dump(), indent=2) + "\n")


async def report(running: Fleet, load: Load, kills: Sequence[Kill], seed: int) -> Report:
    """Measure from the streams, whose clock is that of the kills."""
    finished = await running.client.history([registry.JOBS_FINISHED], key=TENANT, limit=EVENTS_LIMIT)
    ended = {str(event.body.job_id): event for event in finished}
    begun = {sending.number: sending.begun for sending in reversed(load.sendings)}
    lasted = [_s(begun[submit.number], ended[submit.spec.job_id]) for submit in load.submits]
    return Report(
        seed=seed,
        submits=len(load.submits),
        repeats=sum(submit.repeat_after is not None for submit in load.submits),
        unacknowledged=len(load.unacknowledged()),
        job_s=round(median(lasted), 2),
        recoveries=[await _recovery(running, kill, _next(load, kill, ended)) for kill in kills],
    )


def _next(load: Load, kill: Kill, ended: dict[str, Event[Any]]) -> Event[Any] | None:
    """The end of the job that was submitted first after a kill."""
    jobs = [load.submits[sending.number].spec.job_id for sending in load.sendings if sending.begun > kill.at]
    return ended[jobs[0]] if jobs else None


async def _recovery(running: Fleet, kill: Kill, next_job: Event[Any] | None) -> Recovery:
    effect = EFFECTS[kill.part]
    keys = (kill.process,) if kill.part in AGENTS else effect.keys
    events = await running.client.history(effect.messages, key=keys, limit=EVENTS_LIMIT)
    first = next((event for event in events if event.time > kill.at), None)
    return Recovery(
        part=kill.part,
        up_s=round(kill.up_s, 2),
        effect="" if first is None else first.message.id,
        effect_s=None if first is None else _s(kill.at, first),
        next_job_s=None if next_job is None else _s(kill.at, next_job),
    )


def _s(begin: datetime, event: Event[Any]) -> float:
    assert event.delivery is not None
    return round((event.delivery.stored_at - begin).total_seconds(), 2)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
