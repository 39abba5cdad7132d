"""The load of the kill tests: jobs of known effect, submitted at a steady pace as an impatient sender does it.

In: a seed. Out: each job is published under one `ce-id` until there is a PubAck, some with too little patience for the
first one, some once more at any later moment; and a note of every publish.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from nats.errors import Error as NatsError

from contracts import registry
from contracts.jobs import CheckpointPolicy, JobKind, JobSpec, Resources
from libs.bus.errors import BusError
from libs.kit.clock import SystemClock
from libs.kit.ids import new_id
from tests.e2e.fleet import TENANT, Fleet

SUBMITS = 200
REPEATS = SUBMITS // 20
HASTY = SUBMITS // 20
PACE_S = 0.2
LATEST_REPEAT = 60
SAVER_EVERY, SAVER_STEPS, SAVE_STEPS = 10, 6, 2
PATIENCE_S, NO_PATIENCE_S = 2.0, 0.0005
RETRY_S = 0.1
# Two steps in the form of the counting task, and something for the log.
SHORT_STEPS = 2
SHORT_TASK = """
say() { echo "$FARSIDE_ATTEMPT $FARSIDE_MEMBER $$ 0 $1" >> "$TRACE"; echo "step $1"; }
say 1; sleep "$PACE_S"; say 2
"""
SHORT_KINDS = (JobKind.BATCH, JobKind.PREPROCESSING, JobKind.FINE_TUNING, JobKind.TRAINING)


@dataclass(frozen=True)
class Submit:
    """One job to submit; `repeat_after` is the number of the submit behind which it is published once more."""

    number: int
    ce_id: str
    spec: JobSpec
    patience_s: float
    repeat_after: int | None

    @property
    def steps(self) -> list[int]:
        """The steps that the job takes."""
        return list(range(1, (SAVER_STEPS if self.saves else SHORT_STEPS) + 1))

    @property
    def saves(self) -> list[int]:
        """The steps of which it saves a checkpoint."""
        every = None if self.spec.checkpoint is None else self.spec.checkpoint.interval_steps
        return [] if every is None else list(range(every, SAVER_STEPS + 1, every))


@dataclass(frozen=True)
class Sending:
    """One publish and what came of it."""

    number: int
    begun: datetime
    ended: datetime
    acknowledged: bool
    words: str


@dataclass
class Load:
    """The submits, and what their sender saw."""

    running: Fleet
    chance: np.random.Generator
    submits: list[Submit] = field(init=False)
    sendings: list[Sending] = field(default_factory=list[Sending])

    def __post_init__(self) -> None:
        repeated = set(self._some(REPEATS))
        hasty = set(self._some(HASTY))
        self.submits = [
            Submit(
                number=number,
                ce_id=new_id(),
                spec=self._spec(number),
                patience_s=NO_PATIENCE_S if number in hasty else PATIENCE_S,
                repeat_after=number + int(self.chance.integers(LATEST_REPEAT)) if number in repeated else None,
            )
            for number in range(SUBMITS)
        ]

    async def run(self, before: Callable[[int], Awaitable[None]]) -> None:
        """Submit all of them; `before` is awaited ahead of each with its number. Returns when all are acknowledged."""
        async with asyncio.TaskGroup() as sending:
            for submit in self.submits:
                await before(submit.number)
                sending.create_task(self._publish(submit, submit.patience_s))
                self._repeat(sending, lambda after, now=submit.number: after == now)
                await asyncio.sleep(PACE_S)
            self._repeat(sending, lambda after: after >= SUBMITS)

    def acknowledged(self) -> set[int]:
        """Numbers of the submits that had a PubAck."""
        return {sending.number for sending in self.sendings if sending.acknowledged}

    def unacknowledged(self) -> set[int]:
        """Numbers of the submits that were published without a PubAck at least once."""
        return {sending.number for sending in self.sendings if not sending.acknowledged}

    def _repeat(self, sending: asyncio.TaskGroup, due: Callable[[int], bool]) -> None:
        for submit in self.submits:
            if submit.repeat_after is not None and due(submit.repeat_after):
                sending.create_task(self._publish(submit, PATIENCE_S))

    async def _publish(self, submit: Submit, patience_s: float) -> None:
        while not await self._try(submit, patience_s):
            patience_s = PATIENCE_S
            await asyncio.sleep(RETRY_S)

    async def _try(self, submit: Submit, patience_s: float) -> bool:
        spec, begun = submit.spec, SystemClock().now()
        try:
            ack = await self.running.client.publish(
                registry.JOBS_SUBMIT,
                spec,
                key=TENANT,
                subject=spec.job_id,
                actor="test",
                id=submit.ce_id,
                timeout_s=patience_s,
            )
        except (NatsError, BusError, TimeoutError, OSError) as error:
            self._note(submit, begun, None, repr(error))
            return False
        self._note(submit, begun, ack.sequence, "taken for a duplicate" if ack.duplicate else "taken")
        return True

    def _note(self, submit: Submit, begun: datetime, sequence: int | None, words: str) -> None:
        ended = SystemClock().now()
        self.sendings.append(Sending(submit.number, begun, ended, sequence is not None, f"{words} ({sequence})"))

    def _some(self, count: int) -> list[int]:
        return [int(number) for number in self.chance.choice(SUBMITS, count, replace=False)]

    def _spec(self, number: int) -> JobSpec:
        if number % SAVER_EVERY == SAVER_EVERY // 2:
            saving = CheckpointPolicy(interval_steps=SAVE_STEPS)
            return self.running.spec(new_id(), steps=SAVER_STEPS, pace_s=0.1, checkpoint=saving)
        fields: dict[str, Any] = {
            "kind": SHORT_KINDS[int(self.chance.integers(len(SHORT_KINDS)))],
            "resources": Resources(cards=int(self.chance.integers(1, 3))),
            "command": ["/bin/sh", "-c", SHORT_TASK],
            "checkpoint": None,
        }
        return self.running.spec(new_id(), pace_s=round(float(self.chance.uniform(0.1, 2.0)), 2), **fields)
