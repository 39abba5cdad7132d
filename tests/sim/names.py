"""Ids that the contracts accept and people can read."""

from functools import lru_cache

KNOWN = 100_000
_PREFIX = "01890000-0000-7000-8000-"
_STARTS = "00000000-0000-7000-8000-"


def job_id(number: int) -> str:
    """The id of the job of that number."""
    return f"{_PREFIX}{number:012x}"


def job_number(id_: str) -> int:
    """The other way."""
    return int(id_[-12:], 16)


@lru_cache(KNOWN)
def job_name(id_: str) -> str:
    """What a story calls the job."""
    return f"job {job_number(id_)}"


def incarnation(start: int) -> str:
    """The id of an agent's start."""
    return f"{_STARTS}{start:012x}"
