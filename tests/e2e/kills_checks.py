"""What must be true after the kills, job by job: read from the streams, the ledgers and the jobs' own files.

In: the load as its sender saw it. Out: faults in words, and of a job at fault its whole story.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from contracts import registry
from contracts.base import PAGE_LIMIT
from contracts.jobs import JobState, Outcome
from contracts.requests import Holding, HoldingsPage, HoldingsQuery
from contracts.usage import AttemptUsage, UsagePage, UsageQuery
from libs.bus import Event
from libs.cli.session import every
from tests.e2e.fleet import TENANT, Fleet
from tests.e2e.kills_load import Load, Submit
from tests.e2e.kills_parts import Kill

EVENTS_LIMIT = 1_000_000
WINDOW_MS = 1000
ROUNDING_MS = 5
STORIES = 3
JOB_EVENTS = tuple(message for message in registry.MESSAGES if message.stream is registry.JOBS)
ATTEMPT_EVENTS = (registry.ATTEMPTS_STARTED, registry.ATTEMPTS_EXITED)


@dataclass(frozen=True)
class Evidence:
    """All that is known of the jobs, each by job id."""

    running: Fleet
    load: Load
    kills: list[Kill]
    jobs: dict[str, list[Event[Any]]]
    attempts: dict[str, list[Event[Any]]]
    commits: dict[str, list[Event[Any]]]
    usage: dict[str, list[AttemptUsage]]
    held: dict[str, list[Holding]]

    def faults(self) -> list[str]:
        """What is wrong, with the stories of the first jobs at fault."""
        ours = {submit.spec.job_id for submit in self.load.submits}
        found, stories = [f"nobody submitted job {job}" for job in self.jobs.keys() - ours], list[str]()
        for submit in self.load.submits:
            wrong = [*self._job(submit), *self._effect(submit), *self._usage(submit)]
            found += [f"job {submit.number}: {words}" for words in wrong]
            stories += [self.story(submit)] if wrong and len(stories) < STORIES else []
        return found + stories

    def story(self, submit: Submit) -> str:
        """Everything that happened to one job, in the order of time."""
        job = submit.spec.job_id
        sent = [each for each in self.load.sendings if each.number == submit.number]
        told = (*self.jobs[job], *self.attempts[job], *self.commits[job])
        lines = [
            *((each.begun, f"published as {submit.ce_id}: {each.words} at {_clock(each.ended)}") for each in sent),
            *((event.time, _words(event)) for event in told),
            *((held.held_from, _holds(held)) for held in self.held[job]),
        ]
        shown = "\n".join(f"  {_clock(at)} {words}" for at, words in sorted(lines, key=lambda line: line[0]))
        used = [usage.model_dump_json() for usage in self.usage[job]]
        effect = self._steps(submit)
        return f"\njob {submit.number}, {job}, {submit.spec.kind}\n{shown}\n  effect: {effect}\n  usage: {used}"

    def _job(self, submit: Submit) -> Iterator[str]:
        """One job: accepted once, finished once, without a gap, in its only attempt or in the one after those lost."""
        events = self.jobs[submit.spec.job_id]
        names = Counter(event.message.name for event in events)
        if (names["accepted"], names["finished"], names["rejected"]) != (1, 1, 0):
            yield f"it was not accepted once and finished once: {dict(names)}"
            return
        sequences = [event.sequence for event in events]
        if sequences != list(range(1, len(events) + 1)) or events[-1].message is not registry.JOBS_FINISHED:
            yield f"its events are not 1, 2, 3 ... finished: {sequences}"
        last: JobState = events[-1].body
        stand = (last.outcome, last.attempts - last.losses, last.failures)
        if stand != (Outcome.SUCCEEDED, 1, 0):
            yield f"outcome, attempts that were not lost, and failures are {stand}"
        for number in range(1, last.attempts):
            yield from self._lost(submit, number)

    def _lost(self, submit: Submit, number: int) -> Iterator[str]:
        """An attempt may be lost by the kill of its agent alone, and then it never started."""
        told = [event for event in self.attempts[submit.spec.job_id] if event.body.attempt == number]
        exits = [event for event in told if event.message is registry.ATTEMPTS_EXITED]
        if [event.body.cause for event in exits] != ["never_started"]:
            yield f"attempt {number} was lost, and not because it never started"
            return
        [exited] = exits
        placed = next(event for event in self.jobs[submit.spec.job_id] if _places(event, number))
        if not any(kill.process == exited.body.node and placed.time <= kill.at <= exited.time for kill in self.kills):
            yield f"attempt {number} was lost, and the agent of {exited.body.node} was not killed"

    def _effect(self, submit: Submit) -> Iterator[str]:
        """One attempt ran once from its beginning to its end, and each save became one checkpoint."""
        job, number = submit.spec.job_id, self._attempts(submit)
        if self._steps(submit) != [(number, step) for step in submit.steps]:
            yield f"its steps are {self._steps(submit)}, not {submit.steps} of attempt {number}"
        told = [event.message.name for event in self.attempts[job] if event.body.attempt == number]
        if sorted(told) != ["exited", "started"]:
            yield f"its agent told {told} of attempt {number}"
        saved = [event.body.step for event in self.commits[job]]
        if sorted(saved) != submit.saves:
            yield f"checkpoints of steps {saved} were committed, not {submit.saves}"

    def _usage(self, submit: Submit) -> Iterator[str]:
        """Measured is what was held: no less than from start to exit, no more than the scheduler's ledger says."""
        used = {usage.attempt: usage for usage in self.usage[submit.spec.job_id]}
        held = {holding.attempt: holding for holding in self.held[submit.spec.job_id]}
        numbers = list(range(1, self._attempts(submit) + 1))
        if sorted(used) != numbers or sorted(held) != numbers:
            yield f"attempts {sorted(used)} were measured, attempts {sorted(held)} held cards, of {numbers}"
            return
        for number in numbers:
            yield from self._balance(submit, used[number], held[number])

    def _balance(self, submit: Submit, usage: AttemptUsage, held: Holding) -> Iterator[str]:
        name, cards = f"attempt {usage.attempt}", submit.spec.total_cards
        if held.held_to is None or usage.holding:
            yield f"{name} still holds its cards"
            return
        held_ms = _ms(held.held_from, held.held_to) * held.cards
        ran_ms = self._ran_ms(submit, usage.attempt) * cards
        if held.cards != cards or abs((usage.held_gpu_ms or 0) - held_ms) > cards:
            yield f"{name}: metering says {usage.held_gpu_ms} ms were held, the scheduler {held_ms} ms"
        if not ran_ms - ROUNDING_MS * cards <= usage.gpu_ms <= held_ms + WINDOW_MS * cards:
            yield f"{name}: measured {usage.gpu_ms} ms, it ran for {ran_ms} ms and held {held_ms} ms"
        if usage.unbilled or usage.closed_samples != usage.samples:
            yield f"{name}: {usage.closed_samples} of {usage.samples} samples are billed, not {usage.unbilled}"

    def _attempts(self, submit: Submit) -> int:
        events = self.jobs[submit.spec.job_id]
        return events[-1].body.attempts if events else 0

    def _steps(self, submit: Submit) -> list[tuple[int, int]]:
        return [(line.attempt, line.step) for line in self.running.lines(submit.spec.job_id)]

    def _ran_ms(self, submit: Submit, number: int) -> int:
        of_attempt = [event for event in self.attempts[submit.spec.job_id] if event.body.attempt == number]
        told = {event.message.name: event.body for event in of_attempt}
        return _ms(told["started"].started_at, told["exited"].ended_at) if len(told) == 2 else 0


async def gather(running: Fleet, load: Load, kills: list[Kill]) -> Evidence:
    """Look everywhere."""
    client = running.client
    jobs = await client.history(JOB_EVENTS, key=TENANT, limit=EVENTS_LIMIT)
    attempts = await client.history(ATTEMPT_EVENTS, limit=EVENTS_LIMIT)
    commits = await client.history([registry.CHECKPOINTS_COMMITTED], key=TENANT, limit=EVENTS_LIMIT)
    ids = [submit.spec.job_id for submit in load.submits]
    return Evidence(
        running=running,
        load=load,
        kills=kills,
        jobs=_by_job(jobs),
        attempts=_by_job(attempts),
        commits=_by_job(commits),
        usage=_grouped(await usages(running)),
        held=_grouped(await holdings(running, ids)),
    )


async def usages(running: Fleet) -> list[AttemptUsage]:
    """What metering says of every attempt."""

    async def ask(cursor: str | None) -> UsagePage:
        return await running.client.request(registry.QUERY_USAGE, UsageQuery(cursor=cursor), key=TENANT, timeout_s=20)

    return await every(ask, lambda page: page.attempts)


async def holdings(running: Fleet, ids: list[str]) -> list[Holding]:
    """The scheduler's ledger of some jobs."""
    found: list[Holding] = []
    for begin in range(0, len(ids), PAGE_LIMIT):
        asked = ids[begin : begin + PAGE_LIMIT]

        async def ask(cursor: str | None, asked: list[str] = asked) -> HoldingsPage:
            query = HoldingsQuery(job_ids=asked, cursor=cursor)
            return await running.client.request(registry.QUERY_HOLDINGS, query, key=TENANT, timeout_s=20)

        found += await every(ask, lambda page: page.holdings)
    return found


def _by_job(events: list[Event[Any]]) -> dict[str, list[Event[Any]]]:
    found: dict[str, list[Event[Any]]] = defaultdict(list)
    for event in events:
        found[str(event.body.job_id)].append(event)
    return found


def _grouped(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.job_id].append(row)
    return found


def _words(event: Event[Any]) -> str:
    assert event.delivery is not None
    what = f"{event.message.id} {event.sequence} of {event.actor}, stored {_clock(event.delivery.stored_at)}"
    reason = getattr(event.body, "reason", None)
    return what if reason is None else f"{what}: {reason.message}"


def _holds(held: Holding) -> str:
    end = "now" if held.held_to is None else _clock(held.held_to)
    return f"attempt {held.attempt} holds {held.cards} cards until {end}"


def _places(event: Event[Any], number: int) -> bool:
    return event.message is registry.JOBS_PLACED and event.body.attempt.number == number


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S.%f}"[:-3]


def _ms(begin: datetime, end: datetime) -> int:
    return round((end - begin).total_seconds() * 1000)
