"""Work: commands of the scheduler to one node."""

from typing import Annotated

from pydantic import Field

from contracts.base import Count, Model, Name, Positive, Text, Uuid
from contracts.jobs import MAX_MEMBERS, JobSpec, Member


class WorkRun(Model):
    """An offer to run one member of an attempt; the agent claims it before anything starts."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    generation: Positive
    member: Count
    members: Annotated[list[Member], Field(min_length=1, max_length=MAX_MEMBERS)]
    spec: JobSpec


class WorkStop(Model):
    """Stop one member of an attempt, kept as a tombstone if its offer has not been seen yet."""

    job_id: Uuid
    tenant: Name
    attempt: Positive
    member: Count
    grace_s: Count
    reason: Text
