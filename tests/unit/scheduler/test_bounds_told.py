"""What is said when a bound of the tenant or of its cohort is in the way: whose, how much, and until when."""

from contracts.base import ReasonCode
from services.scheduler.core.arrays import CARD, NEVER, Level, Stay
from services.scheduler.core.fairness import shares_milli
from tests.unit.scheduler.scenes import NOW, Node, Run, S, Tenant, World, job, where

H8 = ("H100",) * 8
LENDING = [
    Tenant("a", guarantee=2, limit=8, cohort="x"),
    Tenant("b", guarantee=2, limit=8, cohort="y"),
    Tenant("c", guarantee=2, limit=8),
]
PARENTS = {"x": "all", "y": "all"}


def firm(name: str, tenant: str, cards: tuple[int, ...], ends_s: int | None) -> Run:
    return Run(name, [("n", cards)], tenant, rank=1, ends_s=ends_s, preemptible=False)


def told(world: World) -> dict[str, Stay]:
    return {stay.job_id: stay for stay in world.decided().stays}


def test_a_cohorts_bound_is_met_when_jobs_of_its_tenants_are_over() -> None:
    runs = [firm("a1", "a", (0, 1), 1000), firm("b1", "b", (2, 3), 500), firm("c1", "c", (4,), 100)]
    world = World([Node("n", H8)], [job("j", tenant="a")], runs, LENDING, parents=PARENTS)
    stay = told(world)["j"]
    assert (stay.reason.code, stay.cohort) == (ReasonCode.WAITING_FOR_QUOTA, "all")
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (4, 1, 4)
    assert stay.starts_us == NOW + 500 * S
    assert stay.basis == "at the earliest, if nothing comes before: jobs of cohort all are over by the longest run"
    three = told(world.but(jobs=[job("j", 3, tenant="a")]))["j"]
    assert three.starts_us == NOW + 1000 * S


def test_a_ceiling_is_met_when_jobs_below_it_are_over() -> None:
    runs = [firm("a1", "a", (0, 1), 1000), firm("b1", "b", (2,), 500)]
    world = World([Node("n", H8)], [job("j", tenant="a")], runs, LENDING, parents=PARENTS, ceilings={"x": 2})
    stay = told(world)["j"]
    assert (stay.cohort, stay.starts_us) == ("x", NOW + 1000 * S)
    assert "cohort x has 2 of 2 in use" in stay.reason.message


def test_more_than_a_ceiling_is_met_by_no_end() -> None:
    world = World([Node("n", H8)], [job("j", 3, tenant="a")], [], LENDING, parents=PARENTS, ceilings={"x": 2})
    stay = told(world)["j"]
    assert (stay.reason.asked, stay.reason.allowed, stay.starts_us) == (3, 2, NEVER)
    assert stay.basis == "not known: it asks more than the limit, whatever ends"


def test_a_cohort_whose_jobs_have_no_longest_run_tells_no_start() -> None:
    runs = [firm("a1", "a", (0, 1), None), firm("b1", "b", (2, 3), None)]
    stay = told(World([Node("n", H8)], [job("j", tenant="a")], runs, LENDING, parents=PARENTS))["j"]
    assert (stay.starts_us, stay.basis) == (NEVER, "not known: no end by a longest run would make room enough")


def test_the_first_job_over_its_tenants_limit_is_told_when_and_the_next_the_earliest() -> None:
    runs = [firm("r", "a", (0, 1), 1000), firm("s", "a", (2,), 600)]
    jobs = [job("first", 2, tenant="a"), job("next", 1, tenant="a", at=1)]
    world = World([Node("n", H8)], jobs, runs, [Tenant("a", guarantee=3)])
    found = told(world)
    assert (found["first"].starts_us, found["next"].starts_us) == (NOW + 1000 * S, NOW + 600 * S)
    assert found["first"].basis == "jobs of the tenant are over by the longest run"
    assert found["next"].basis.startswith("at the earliest, if nothing comes before: ")


def test_a_limit_of_jobs_is_met_when_one_is_over() -> None:
    runs = [firm("r", "a", (0, 1), 1000), firm("s", "a", (2,), 600)]
    stay = told(World([Node("n", H8)], [job("j", tenant="a")], runs, [Tenant("a", jobs=2)]))["j"]
    assert (stay.reason.resource, stay.starts_us) == ("jobs", NOW + 600 * S)
    assert stay.reason.message == "tenant a has 2 of 2 jobs in use, 1 more asked: waits for its own jobs"


def test_parts_of_cards_are_told_exactly() -> None:
    share = job("", share=CARD // 2, tiers=()).demand
    runs = [Run(f"r{at}", [("n", (at,))], "a", preemptible=False, demand=share) for at in range(3)]
    stay = told(World([Node("n", H8)], [job("j", tenant="a")], runs, [Tenant("a", guarantee=2)]))["j"]
    assert (stay.reason.resource, stay.reason.used) == ("card_millionths", 3 * CARD // 2)
    assert (stay.reason.asked, stay.reason.allowed) == (CARD, 2 * CARD)
    assert "has 1.5 of 2 cards in use, 1 more asked" in stay.reason.message


def test_what_comes_first_is_told_with_what_a_job_without_cards_asks() -> None:
    runs = [firm("r", "a", (0,), 1000)]
    jobs = [job("big", 8, tenant="a"), job("host", 0, tenant="a", at=1, longest_s=9999, cpu_milli=500)]
    reason = told(World([Node("n", H8)], jobs, runs, [Tenant("a")]))["host"].reason
    assert (reason.code, reason.resource, reason.asked) == (ReasonCode.RESERVED, "cpu_milli", 500)
    assert reason.message.startswith("asks 500 cpu_milli: nodes with room for it are kept for job big")


def test_shares_of_tenants_are_by_weight_and_of_what_all_had() -> None:
    tenants = [Tenant("a", uses=10), Tenant("b", uses=60, weight=2), Tenant("c")]
    world = World([Node("n", H8)], tenants=tenants)
    assert shares_milli(world.tenancy(world.fleet()), world.policy) == {"a": 250, "b": 750, "c": 0}
    idle = world.but(tenants=[Tenant("a"), Tenant("b")])
    assert shares_milli(idle.tenancy(idle.fleet()), idle.policy) == {"a": 0, "b": 0}


def test_no_limit_is_kept_for_what_the_fleet_could_never_hold_and_it_is_told_so() -> None:
    runs = [firm("r", "a", (0, 1), 1000)]
    jobs = [
        job("never", 1, members=3, tenant="a", level=Level.NODE, level_required=True),
        job("small", 2, tenant="a", at=1, longest_s=2000),
    ]
    nodes = [Node("n", H8[:2]), Node("m", H8[:2])]
    plan = World(nodes, jobs, runs, [Tenant("a", guarantee=4)]).decided()
    [stay] = plan.stays
    assert (stay.job_id, stay.reason.code, stay.reason.resource) == (
        "never",
        ReasonCode.WAITING_FOR_NODES,
        "members_per_node",
    )
    assert [placement.job_id for placement in plan.placements] == ["small"]


def test_what_the_plan_itself_places_counts_among_the_ends_that_a_limit_waits_for() -> None:
    running = [firm("r", "c", (0, 1), 1000)]
    line = [
        job("first", tenant="c", at=-300, longest_s=100),
        job("large", 4, tenant="c", at=-200, longest_s=100),
        job("late", tenant="c", at=-100, longest_s=100_000),
    ]
    world = World([Node("n", H8)], line, running, [Tenant("c", guarantee=0, limit=4)])
    assert where(world.decided()) == {"first": ["n"]}
    stays = told(world)
    assert stays["large"].starts_us == NOW + 1000 * S
    assert stays["late"].reason.code == ReasonCode.RESERVED


def test_a_ceiling_below_a_guarantee_does_not_hide_that_the_tenants_own_ends_help() -> None:
    own = Tenant("b", guarantee=8, limit=9, cohort="k")
    world = World([Node("n", H8 * 2)], [job("j", 7, tenant="b")], [firm("r", "b", (0, 1), 100)], [own])
    stay = told(world.but(ceilings={"k": 4}))["j"]
    assert (stay.reason.used, stay.reason.asked, stay.reason.allowed) == (2, 7, 8)
    assert stay.starts_us == NOW + 100 * S
    assert where(world.but(ceilings={"k": 4}, runs=[]).decided()) == {"j": ["n"]}
