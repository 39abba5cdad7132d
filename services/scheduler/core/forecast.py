"""When one job may start at the earliest, for whoever asks: more than a plan tells of jobs that have no reservation."""

from services.scheduler.core.arrays import Demand, Fleet, Running, Tenants
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.packing import PLACERS, Memo, Mix, Room
from services.scheduler.core.policy import Policy
from services.scheduler.core.reserve import basis, first_start
from services.scheduler.core.work import Work

FREE_NOW = "the room is free now, but jobs that come before it have a claim"


def earliest(
    fleet: Fleet,
    running: Running,
    tenants: Tenants,
    mix: Mix,
    policy: Policy,
    now_us: int,
    *,
    demand: Demand,
    tenant: int,
    memo: Memo | None = None,
) -> tuple[int, str] | None:
    """The first time at which the job would fit if nothing else came before it, and what that rests on.

    None when that is not known: what holds the room has no longest run, or no such room is there.
    """
    room, keeping = Room(fleet, mix, PLACERS[policy.placer], memo), Keeping(fleet, tenants)
    allowed = keeping.usable(keeping.group(tenant))
    if room.find(demand, allowed) is not None:
        return now_us, FREE_NOW
    work = Work(fleet, running, now_us)
    start = first_start(room, work, demand, allowed, work.gone_us(now_us, policy.grace_s))
    return None if start is None else (start.at_us, f"at the earliest, if nothing comes before: {basis(work, start)}")
