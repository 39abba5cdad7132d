"""What the scheduler has promised, told by the states of jobs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from contracts.jobs import CARD_MILLI, JobPhase, JobState, Member

HELD_BY = {JobPhase.PLACED, JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING, JobPhase.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class Promise:
    """What one job holds of each node, in thousandths of cards, or asks for while it waits.

    `critical`: what runs may not be stopped for another job's sake.
    """

    job_id: str
    version: int
    tenant: str
    critical: bool
    ended: bool
    asked_milli: int
    cards_milli: Mapping[str, int]
    at: datetime


def promise(state: JobState) -> Promise:
    """What a job's state promises. A job without cards that is placed on a node still needs the node."""
    held: Counter[str] = Counter()
    if state.state in HELD_BY and state.attempt is not None:
        for member in state.attempt.members:
            held[member.node] += _milli(member)
    waits = state.state in {JobPhase.WAITING, JobPhase.ACCEPTED}
    spec = state.spec
    share = spec.resources.share_milli or CARD_MILLI
    return Promise(
        job_id=state.job_id,
        version=state.version,
        tenant=state.tenant,
        critical=not spec.effective_preemptible,
        ended=state.state is JobPhase.FINISHED,
        asked_milli=spec.members * spec.resources.cards * share if waits else 0,
        cards_milli=dict(held),
        at=state.updated_at,
    )


def _milli(member: Member) -> int:
    if member.share_milli is not None:
        return member.share_milli
    return len(member.cards) * CARD_MILLI
