"""A node speaks for the members that it was given, and for no others.

In: what a node says, and who holds the attempt it names, as the scheduler placed it. Out: why it is not heard, or None.
"""

from collections.abc import Mapping

from contracts.attempts import AttemptRef
from contracts.requests import RestoreRequest


def not_placed(said: AttemptRef | RestoreRequest) -> str:
    """Words for an attempt whose placement is not known, or not yet."""
    return f"attempt {said.attempt} of job {said.job_id} was not placed, as far as is known"


def foreign(said: AttemptRef | RestoreRequest, holders: Mapping[int, str]) -> str | None:
    """Why the node is not heard about that member, or None; `holders` maps members of the attempt to their nodes."""
    holder = holders.get(said.member)
    if holder == said.node:
        return None
    whom = f"member {said.member} of attempt {said.attempt} of job {said.job_id}"
    where = f"is held by node {holder}" if holder is not None else "does not exist"
    return f"{whom} {where}, node {said.node} may not speak for it: look at what runs on {said.node}"
