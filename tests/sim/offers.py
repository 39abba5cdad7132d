"""What of a node is given away, and the offers that tell its agent."""

from dataclasses import dataclass

from contracts.jobs import JobSpec, Member
from contracts.work import WorkRun
from services.scheduler.core.demands import host_memory_bytes
from services.scheduler.core.model import CARD, Attempt, Job, MemberRun


@dataclass(frozen=True, slots=True)
class Used:
    """What of a node is given away; shares by index of card."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    slots: int = 0
    shares: tuple[tuple[int, int], ...] = ()

    def give(self, member: MemberRun, spec: JobSpec) -> "Used":
        """The same with a member's seat taken."""
        return self._changed(member, spec, 1)

    def take_back(self, member: MemberRun, spec: JobSpec) -> "Used":
        """The same with a member's seat free again."""
        return self._changed(member, spec, -1)

    def _changed(self, member: MemberRun, spec: JobSpec, sign: int) -> "Used":
        shares = dict(self.shares)
        for card in member.seat.cards:
            shares[card] = shares.get(card, 0) + sign * member.seat.share
        return Used(
            self.cpu_milli + sign * spec.resources.cpu_milli,
            self.memory_bytes + sign * host_memory_bytes(spec.resources),
            self.slots + sign,
            tuple(sorted(shares.items())),
        )


def members_of(attempt: Attempt) -> list[Member]:
    """The members of an attempt as messages name them."""
    return [
        Member(
            index=run.index,
            node=run.seat.node,
            tier=run.seat.tier,
            cards=list(run.seat.cards),
            accelerator=run.seat.accelerator,
            card_memory_bytes=run.seat.card_memory_bytes,
            share_milli=None if run.seat.share == CARD else run.seat.share_milli,
            share_millionths=None if run.seat.share == CARD else run.seat.share,
        )
        for run in attempt.members
    ]


def work_run(job: Job, attempt: Attempt, index: int, members: list[Member]) -> WorkRun:
    """The offer to one member."""
    return WorkRun(
        job_id=job.spec.job_id,
        tenant=job.spec.tenant,
        attempt=attempt.number,
        generation=attempt.generation,
        member=index,
        members=members,
        spec=job.spec,
    )
