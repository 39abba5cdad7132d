"""What becomes of a notification after a try: delivered, tried again later, or parked with the reason."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from libs.kit.retry import delay

TOO_MANY_REQUESTS = 429
SHOWN_CHARS = 200


@dataclass(frozen=True)
class Patience:
    """How long a receiver that does not answer is waited for, in seconds."""

    first_s: float
    cap_s: float
    give_up_s: float


@dataclass(frozen=True)
class Answered:
    """The receiver has answered with an HTTP status, and the beginning of what it said."""

    status: int
    text: str = ""


@dataclass(frozen=True)
class Unanswered:
    """There was no answer: why, in words."""

    why: str


@dataclass(frozen=True)
class Delivered:
    """The receiver has it."""


@dataclass(frozen=True)
class Again:
    """To be tried again at `due_at`."""

    due_at: datetime
    message: str


@dataclass(frozen=True)
class Park:
    """Not to be tried any more."""

    message: str


Fate: TypeAlias = Delivered | Again | Park


def judge(answer: Answered | Unanswered, *, tries: int, queued_at: datetime, now: datetime, patience: Patience) -> Fate:
    """What `answer` to try number `tries` + 1 means for a notification queued at `queued_at`."""
    if isinstance(answer, Answered) and 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's own classes
        return Delivered()
    message = _words(answer)
    if isinstance(answer, Answered) and answer.status < 500 and answer.status != TOO_MANY_REQUESTS:  # noqa: PLR2004
        return Park(f"{message}: the receiver refuses it, and would again")
    waited_s = (now - queued_at).total_seconds()
    if waited_s >= patience.give_up_s:
        return Park(f"given up after {tries + 1} tries in {waited_s:.0f} s; the last: {message}")
    return Again(now + timedelta(seconds=delay(tries, patience.first_s, patience.cap_s)), message)


def _words(answer: Answered | Unanswered) -> str:
    if isinstance(answer, Unanswered):
        return answer.why
    said = " ".join(answer.text.split())[:SHOWN_CHARS]
    return f"answered HTTP {answer.status}{f' ({said})' if said else ''}"
