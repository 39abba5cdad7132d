"""SC5 against trying everything: for one member no smaller set of victims would have done, for a gang none is idle."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings

from services.scheduler.core.fairness import Accounts
from services.scheduler.core.keeping import Keeping
from services.scheduler.core.packing import PLACERS, Mix, Room
from services.scheduler.core.preempt import find_victims
from services.scheduler.core.reserve import found_without
from services.scheduler.core.rights import Rights
from services.scheduler.core.scene import Scene, asked_of
from services.scheduler.core.stages import staged
from services.scheduler.core.work import Work
from tests.unit.scheduler.scenes import World
from tests.unit.scheduler.town import worlds

MOST = 10


def scene_of(world: World) -> Scene:
    fleet, policy = world.fleet(), world.policy
    queue, running = staged(world.queue(fleet), world.running(fleet), policy, world.now_us)
    tenants = world.tenancy(fleet)
    room = Room(fleet, Mix(), PLACERS[policy.placer])
    accounts, keeping = Accounts(tenants, policy), Keeping(fleet, tenants)
    return Scene(fleet, queue, running, tenants, policy, world.now_us, room, accounts, keeping)


@settings(max_examples=50)
@given(worlds())
def test_sc05_no_smaller_set_would_have_done(world: World) -> None:
    scene = scene_of(world)
    work = Work(scene.fleet, scene.running, world.now_us)
    for at, one in enumerate(world.jobs):
        tenant = int(scene.queue.tenant[at])
        inside = scene.accounts.inside(tenant, asked_of(scene.fleet, one.demand))
        rights = Rights(scene, work, tenant, int(scene.queue.rank[at]), inside=inside)
        allowed = scene.keeping.usable(scene.keeping.group(tenant))
        eligible: list[int] = np.flatnonzero(rights.eligible).tolist()
        if len(eligible) > MOST or scene.room.find(one.demand, allowed) is not None:
            continue

        def enough(attempts: tuple[int, ...]) -> bool:
            free = found_without(scene.room, work, one.demand, allowed, list(attempts))  # noqa: B023 - called at once
            return free is not None and rights.allow(attempts)  # noqa: B023 - called at once

        fewest = next(
            (size for size in range(1, len(eligible) + 1) if any(map(enough, combinations(eligible, size)))), None
        )
        victims = find_victims(scene, work, one.demand, allowed, rights)
        assert (victims is None) == (fewest is None), one
        if victims is not None:
            assert enough(victims.attempts)
            without = combinations(victims.attempts, len(victims.attempts) - 1)
            assert len(victims.attempts) == fewest or (one.demand.members > 1 and not any(map(enough, without))), one
