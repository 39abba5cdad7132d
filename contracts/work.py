"""Work: commands of the scheduler to one node."""

from typing import Annotated

from pydantic import Field

from contracts.base import Count, Model, Name, Text, Uuid
from contracts.jobs import JobSpec, Member


class WorkRun(Model):
    """An offer to run one member of an attempt; the agent claims it before anything starts."""

    job_id: Uuid
    tenant: Name
    attempt: Annotated[int, Field(ge=1)]
    generation: Annotated[int, Field(ge=1)]
    member: Count
    members: Annotated[list[Member], Field(min_length=1)]
    spec: JobSpec


class WorkStop(Model):
    """Stop one member of an attempt, kept as a tombstone if its offer has not been seen yet."""

    job_id: Uuid
    tenant: Name
    attempt: Annotated[int, Field(ge=1)]
    member: Count
    grace_s: Count
    reason: Text
