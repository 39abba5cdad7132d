"""The shim: one small process above each attempt, which ends the attempt in time whether the agent lives or not.

In: `plan.json` in the attempt's directory (its only argument), `stop.json` when the agent wants an end, and the node's
lease. Out: `shim.json` (it owns the attempt), `task.json`, the task's output in bounded segments, and `exit.json`.
Imports the standard library only; runs in a session of its own.
"""

import os
import select
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from services.agent import handoff, proctree
from services.agent.handoff import Ending, LeaseTerms, Plan, Stop, Task
from services.agent.segments import SegmentWriter

LOOK_S = 1.0
READ_BYTES = 65536
SWEEP_ROUNDS = 250
SWEEP_PAUSE_S = 0.02
NOT_EXECUTABLE = 127
WRITE_TRIES = 60


@dataclass(frozen=True)
class Sentence:
    """The task must end: asked at `term_at`, killed at `kill_at`, both on the boot clock."""

    cause: str
    message: str
    term_at: float
    kill_at: float


def sentences(plan: Plan, lease: handoff.Lease | None, stop: Stop | None, boot: str, started: float) -> list[Sentence]:
    """Every reason for which the task ends one day, as things stand now."""
    found: list[Sentence] = []
    if plan.lease is not None:
        found.append(_lease_sentence(plan.lease, lease, boot))
    if plan.max_runtime_s is not None:
        end = started + plan.max_runtime_s
        words = f"ran longer than max_runtime_s = {plan.max_runtime_s:g}"
        found.append(Sentence("max_runtime", words, end, end + plan.grace_s))
    if stop is not None:
        found.append(Sentence(stop.cause, stop.reason, stop.asked, stop.asked + stop.grace_s))
    return found


def _lease_sentence(terms: LeaseTerms, lease: handoff.Lease | None, boot: str) -> Sentence:
    if lease is None or lease.boot != boot or lease.epoch != terms.epoch:
        return Sentence("lease_expired", "the node's lease lapsed", float("-inf"), float("-inf"))
    kill_at = lease.deadline - terms.lead_s
    return Sentence("lease_expired", "the node's lease ran out", kill_at - terms.grace_s, kill_at)


@dataclass
class Watch:
    """The end as decided so far. The first cause stays; the kill may only come nearer."""

    sentence: Sentence | None = None

    def update(self, all_sentences: list[Sentence], now: float) -> bool:
        """Take in what is due at `now`; whether the task must be asked to end at this very moment."""
        due = sorted((s for s in all_sentences if s.term_at <= now), key=lambda s: s.term_at)
        if self.sentence is None and due:
            self.sentence = due[0]
            self._hasten(due)
            return True
        self._hasten(due)
        return False

    def _hasten(self, due: list[Sentence]) -> None:
        if self.sentence is not None:
            kill_at = min(s.kill_at for s in (self.sentence, *due))
            self.sentence = replace(self.sentence, kill_at=kill_at)

    def next_at(self, all_sentences: list[Sentence], now: float) -> float:
        """When something falls due next, if nothing changes."""
        times = [s.term_at for s in all_sentences if s.term_at > now]
        if self.sentence is not None:
            times.append(self.sentence.kill_at)
        return min(times, default=float("inf"))


class Shim:
    """Runs one plan from start to exit.json."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._boot = proctree.boot_id()
        self._log = SegmentWriter(folder / handoff.LOG, plan.log)
        self._watch = Watch()
        self._wake, self._pipe = -1, -1
        self._started = proctree.boottime()
        self._started_at = _utc()
        self._main = -1
        self._status: int | None = None

    def run(self) -> Ending:
        """Start the task, see it to its end and say how it went."""
        self._wake = _watch_signals()
        proctree.adopt_orphans()
        if self._look():
            return self._ending(None)
        try:
            self._main, self._pipe = _launch(self._plan, str(self._folder))
        except OSError as error:
            words = f"command {self._plan.command[0]!r} cannot be run: {error.strerror or error}"
            return Ending("failed", NOT_EXECUTABLE, words, None, _utc())
        try:
            self._tell_task()
            self._follow()
        finally:
            self._sweep()
            self._log.close()
        return self._ending(self._status)

    def _tell_task(self) -> None:
        with suppress(ProcessLookupError):
            task = Task(proctree.identity(self._main), self._started_at)
            handoff.write(self._folder / handoff.TASK, task)

    def _follow(self) -> None:
        """Until the main process ends or the kill falls due: pass output on, watch lease, limits and orders."""
        while self._reap() is None or self._winding_down():
            now = proctree.boottime()
            if self._look():
                proctree.kill_all({self._main}, self._main, signal.SIGTERM)
            if self._watch.sentence is not None and self._watch.sentence.kill_at <= now:
                return
            wait_s = min(LOOK_S, max(0.0, self._watch.next_at(self._sentences(), now) - now))
            self._pass_on(wait_s)

    def _winding_down(self) -> bool:
        """Whether others of the group still use the grace after the main process has gone (a shell dies first)."""
        return self._watch.sentence is not None and bool(self._left())

    def _left(self) -> set[int]:
        return proctree.belonging(str(self._folder), self._main, os.getpid())

    def _look(self) -> bool:
        return self._watch.update(self._sentences(), proctree.boottime())

    def _sentences(self) -> list[Sentence]:
        lease = None if self._plan.lease is None else handoff.read_lease(Path(self._plan.lease.path))
        return sentences(self._plan, lease, handoff.read_stop(self._folder), self._boot, self._started)

    def _pass_on(self, wait_s: float) -> None:
        sources = [self._wake] if self._pipe < 0 else [self._wake, self._pipe]
        ready, _, _ = select.select(sources, [], [], wait_s)
        if self._wake in ready:
            with suppress(BlockingIOError):
                if _asked_by_signal(os.read(self._wake, 64)):
                    self._stop_by_signal()
        if self._pipe in ready:
            data = os.read(self._pipe, READ_BYTES)
            if data:
                self._log.write(data)
            else:
                os.close(self._pipe)
                self._pipe = -1

    def _stop_by_signal(self) -> None:
        if handoff.read_stop(self._folder) is None:
            order = Stop("stopped", self._plan.grace_s, proctree.boottime(), "the shim was asked to end by a signal")
            handoff.write(self._folder / handoff.STOP, order)

    def _sweep(self) -> None:
        """Kill all that is left of the attempt, and take in its last output."""
        for _ in range(SWEEP_ROUNDS):
            left = self._left()
            if self._reap() is not None and not left:
                break
            proctree.kill_all(left, self._main, signal.SIGKILL)
            self._pass_on(SWEEP_PAUSE_S)
        while self._pipe >= 0 and select.select([self._pipe], [], [], 0)[0]:
            self._pass_on(0)

    def _reap(self) -> int | None:
        """Collect dead children, adopted ones too; the main process's exit code once it has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self._status
            if pid == 0:
                return self._status
            if pid == self._main:
                self._status = os.waitstatus_to_exitcode(status)

    def _ending(self, code: int | None) -> Ending:
        sentence = self._watch.sentence
        started_at = self._started_at if self._main > 0 else None
        if sentence is not None:
            return Ending(sentence.cause, code, sentence.message, started_at, _utc())
        if code == 0:
            return Ending("completed", 0, "", started_at, _utc())
        words = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return Ending("failed", code, words, started_at, _utc())


def _launch(plan: Plan, folder: str) -> tuple[int, int]:
    """Start the task in a session of its own; its pid and the reading end of its output. OSError if it cannot run."""
    out_read, out_write = os.pipe()
    word_read, word_write = os.pipe()
    parent = os.getpid()
    env = {**plan.env, proctree.MARK: folder}
    pid = os.fork()
    if pid == 0:
        _become(plan, env, out_write, word_write, parent)
    os.close(out_write)
    os.close(word_write)
    word = os.read(word_read, 64)
    os.close(word_read)
    if word:
        os.close(out_read)
        os.waitpid(pid, 0)
        number = int(word)
        raise OSError(number, os.strerror(number))
    return pid, out_read


def _become(plan: Plan, env: dict[str, str], out: int, word: int, parent: int) -> None:
    """In the child: become the task. Never returns; an error number goes up through `word`."""
    try:
        os.setsid()
        proctree.die_with_parent(parent)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(plan.work)
        os.execvpe(plan.command[0], list(plan.command), env)  # noqa: S606 - the job's command, without a shell
    except OSError as error:
        os.write(word, str(error.errno or NOT_EXECUTABLE).encode())
    finally:
        os._exit(NOT_EXECUTABLE)


def _watch_signals() -> int:
    """Turn signals into bytes to wait for: SIGCHLD, SIGUSR1 (look at stop.json) and SIGTERM (end the attempt)."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if proctree.LINUX else _plain_pipe()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return read


def _plain_pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def _asked_by_signal(numbers: bytes) -> bool:
    return signal.SIGTERM in numbers


def _utc() -> str:
    return datetime.now(UTC).isoformat()  # noqa: TID251 - libs.kit would slow the start


def main(folder: Path) -> int:
    """Own the attempt or leave it; 0 when this shim ran it, 3 when somebody else owns it."""
    if not handoff.create(folder / handoff.SHIM, handoff.Owner(proctree.identity(os.getpid()))):
        return 3
    ending = Shim(folder, handoff.read_plan(folder)).run()
    for last in reversed(range(WRITE_TRIES)):
        try:
            handoff.write(folder / handoff.EXIT, ending)
        except OSError:
            if last == 0:
                raise
            select.select([], [], [], LOOK_S)
        else:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
