"""What holds for every plan, whatever the fleet, the jobs, the attempts and the tenants."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.base import ReasonCode
from services.scheduler.core.arrays import CARD, Plan
from services.scheduler.core.policy import Policy
from tests.unit.scheduler.scenes import Node, Tenant, World, job
from tests.unit.scheduler.town import Town, worlds

ALONE = Policy(reservations=0, preempt=False, consolidate=False)
PLAIN = {ReasonCode.WAITING_FOR_CARDS, ReasonCode.WAITING_FOR_NODES, ReasonCode.FRAGMENTED, ReasonCode.TOPOLOGY}


def carried_out(world: World) -> tuple[Town, Plan]:
    town = Town.of(world)
    return town, town.step()


@given(worlds())
def test_no_card_above_its_capacity_and_no_node_above_its_own(world: World) -> None:
    town, _ = carried_out(world)
    fleet = town.world.fleet()
    for name in ("card_free", "free_cpu_milli", "free_memory_bytes", "free_slots"):
        assert (getattr(fleet, name) >= 0).all(), name


@given(worlds())
def test_no_job_in_two_places_and_each_is_named_once(world: World) -> None:
    plan = world.decided()
    named = [p.job_id for p in plan.placements] + [stay.job_id for stay in plan.stays]
    assert sorted(named) == sorted(waiting.name for waiting in world.jobs)
    stopped = [p.job_id for p in plan.preemptions]
    assert len(set(stopped)) == len(stopped)
    assert set(stopped) <= {run.name for run in world.runs if not run.stopping}


@given(worlds())
def test_gangs_are_all_or_nothing(world: World) -> None:
    asked = {waiting.name: waiting.demand for waiting in world.jobs}
    for placement in world.decided().placements:
        demand = asked[placement.job_id]
        assert [len(seat.cards) for seat in placement.seats] == [demand.cards] * demand.members
        assert len({(seat.tier, seat.accelerator) for seat in placement.seats}) == 1


@given(worlds())
def test_only_ready_nodes_of_pools_and_tiers_that_the_job_may_use(world: World) -> None:
    waiting = {one.name: one for one in world.jobs}
    nodes = {node.name: node for node in world.nodes}
    pools = {tenant.name: tenant.pools for tenant in world.tenants}
    for placement in world.decided().placements:
        one = waiting[placement.job_id]
        for node in (nodes[seat.node] for seat in placement.seats):
            assert node.ready
            assert node.tier in one.demand.tiers
            assert node.pool is None or node.pool in pools[one.tenant]


@given(worlds())
def test_nobody_gets_above_its_limit_or_its_cohort(world: World) -> None:
    town, plan = carried_out(world)
    fleet = town.world.fleet()
    before, after = world.tenancy(world.fleet()), town.world.tenancy(fleet)
    grown = after.used > before.used
    assert (after.used[grown] <= after.limit[grown]).all()
    mine = after.cohort == 0
    lent = grown & mine & (after.used > after.guarantee)
    if lent.any() and not plan.preemptions:
        assert (
            after.used[mine].sum() <= max(after.guarantee[mine].sum(), before.used[mine].sum())
            or (grown & mine & ~lent).any()
        )


@given(worlds(), st.data())
def test_the_order_of_the_input_does_not_change_the_outcome(world: World, data: st.DataObject) -> None:
    shuffled = world.but(
        jobs=data.draw(st.permutations(world.jobs)),
        runs=data.draw(st.permutations(world.runs)),
        tenants=data.draw(st.permutations(world.tenants)),
        nodes=data.draw(st.permutations(world.nodes)),
    )
    assert shuffled.decided() == world.decided()


@given(worlds(ALONE))
def test_in_bulk_and_one_by_one_are_the_same(world: World) -> None:
    plan = world.decided()
    town = Town.of(world)
    for placement in plan.placements:
        town.world = town.world.but(jobs=[town.jobs[placement.job_id]], now_us=world.now_us)
        assert [p.seats for p in town.step().placements] == [placement.seats]


@given(worlds())
def test_nothing_waits_while_it_fits_unless_a_reservation_says_so(world: World) -> None:
    waiting = {one.name: one for one in world.jobs}
    town, plan = carried_out(world)
    after = town.world.but(policy=ALONE, runs=[*town.world.runs, *(run for run in world.runs if run.stopping)])
    for stay in plan.stays:
        if stay.reason.code in PLAIN:
            alone = after.but(jobs=[waiting[stay.job_id]]).decided()
            assert alone.placements == (), stay
        elif stay.reason.code == ReasonCode.RESERVED:
            assert plan.reservations or stay.reason.resource in {"cards", "card_millionths"}


@given(worlds())
def test_victims_leave_for_a_job_that_waits_and_has_its_room_kept(world: World) -> None:
    plan = world.decided()
    kept = {reservation.job_id for reservation in plan.reservations}
    stays = {stay.job_id: stay.reason.code for stay in plan.stays}
    for preemption in plan.preemptions:
        if preemption.for_job is not None:
            assert preemption.for_job in kept
            assert stays[preemption.for_job] == ReasonCode.WAITING_FOR_PREEMPTION
    nodes = [node for reservation in plan.reservations for node in reservation.nodes]
    assert max(Counter(nodes).values(), default=1) == 1, "a node is kept for two"


@settings(max_examples=60)
@given(worlds())
def test_plans_come_to_rest_and_no_job_is_preempted_twice_without_another_change(world: World) -> None:
    """SC4: victims leave and come back, nothing else changes."""
    town = Town.of(world)
    town.settle()
    assert all(len(times) == 1 for times in town.preempted.values())


plain_tenants = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=2, max_size=3)


@settings(max_examples=60)
@given(
    plain_tenants, st.integers(1, 8), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12), st.data()
)
def test_guarantees_hold(
    drawn: list[tuple[int, int]], cards: int, drawn_jobs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """At rest no job inside its tenant's guarantee waits while another tenant holds more than its own."""
    tenants = [Tenant(f"t{at}", guarantee=g, limit=g + more) for at, (g, more) in enumerate(drawn)]
    jobs = [job(f"j{at}", tenant=f"t{t % len(tenants)}", rank=rank, at=at) for at, (t, rank) in enumerate(drawn_jobs)]
    early = data.draw(st.integers(0, len(jobs)))
    town = Town.of(World([Node("n", ("h100",) * cards)], jobs[:early], tenants=tenants))
    town.settle()
    town.submit(*jobs[early:])
    town.settle()
    tenancy = town.world.tenancy(town.world.fleet())
    above = {n for n, used, g in zip(tenancy.names, tenancy.used, tenancy.guarantee, strict=True) if used > g}
    free = town.world.fleet().card_free.sum() // CARD
    for one in town.world.jobs:
        at = tenancy.names.index(one.tenant)
        if tenancy.used[at] + CARD <= tenancy.guarantee[at]:
            assert above - {one.tenant} == set(), (one, above)
            assert free == 0
