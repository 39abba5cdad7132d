"""The memory of the cycle: whatever way it came to a state, its arrays are those of one that was filled at once."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.base import Priority, Reason, ReasonCode, Tier
from contracts.jobs import JobKind, JobPhase
from services.scheduler.core.arrays import CARD, NEVER, Demand
from services.scheduler.core.model import Seat
from services.scheduler.core.quota import Quotas, Tenant
from services.scheduler.memory.rows import CardRow, JobRow, Live, NodeRow, micros
from services.scheduler.policies import Cohort, Rules
from services.scheduler.snapshot import Scenery, Snapshot
from tests.unit.scheduler.builders import GB, NOW

RULES = Rules(pools={"odd": ("n-1", "n-3")}, cohorts={"all": Cohort(ceiling_cards=9), "lab": Cohort("all")})
KNOWN = {
    "acme": Tenant("acme", 1, Quotas(10**9, 8, 4, Priority.ONLINE, guarantee=2, limit=6), cohort="lab", pools=("odd",)),
    "beta": Tenant("beta", 1, Quotas(10**9, 8, 4, Priority.ONLINE), suspended=True, weight=2.0),
}


def _node(name: int, version: int, ready: bool, cards: int, limit: int | None, bad: int) -> NodeRow:  # noqa: FBT001
    return NodeRow(
        node=f"n-{name}",
        version=version,
        ready=ready,
        tier=Tier.CENTRAL if name % 2 else Tier.REMOTE,
        zone=f"z{name % 2}",
        rack="r" if name % 3 else "",
        scarce=name == 0,
        linked=name != 1,
        cpu_milli=8000,
        memory_bytes=64 * GB,
        limit=NEVER if limit is None else limit * CARD,
        link_mbps=NEVER,
        cards=tuple(CardRow(at, "h100" if at % 2 else "a100", 80 * GB, at == bad) for at in range(cards)),
    )


def _seat(node: int, card: int, share: int) -> Seat:
    return Seat(f"n-{node}", Tier.CENTRAL, (card,), share=share)


NODES = st.builds(
    _node,
    st.integers(0, 4),
    st.integers(1, 9),
    st.booleans(),
    st.integers(0, 4),
    st.none() | st.integers(0, 3),
    st.integers(0, 9),
)
SEATS = st.builds(_seat, st.integers(0, 4), st.integers(0, 3), st.sampled_from([CARD, CARD // 2]))


def _job(name: int, tenant: str, seats: list[Seat] | None, held: bool, rest_s: int) -> JobRow:  # noqa: FBT001
    share = CARD if not seats else seats[0].share
    live = None
    if seats:
        same = tuple(replace(seat, share=share) for seat in seats)
        live = Live(1, micros(NOW), NEVER, micros(NOW), stopping=name % 2 == 0, seats=same)
    phase = JobPhase.RUNNING if live else JobPhase.HELD if held else JobPhase.WAITING
    return JobRow(
        job_id=f"j-{name}",
        tenant=tenant,
        name="digits",
        kind=JobKind.TRAINING,
        priority=Priority.NORMAL,
        demand=Demand((Tier.CENTRAL,), cards=1, share=share, cpu_milli=1000 * name),
        longest_us=NEVER,
        preemptible=True,
        version=name + 1,
        phase=phase,
        reason=None,
        not_before=None if not rest_s else NOW + timedelta(seconds=rest_s),
        submitted_at=NOW,
        avoid=("n-1",) if name % 3 == 0 else (),
        dataset=("digits", "v1") if name == 2 else None,
        window="nights" if name == 3 else None,
        damaged_us=-1,
        earlier_ms=0,
        preempted_us=-1,
        leaving_for=None,
        live=live,
    )


JOBS = st.builds(
    _job,
    st.integers(0, 6),
    st.sampled_from(["acme", "beta", "gone"]),
    st.none() | st.lists(SEATS, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([0, 0, -5, 60]),
)
CHANGES = st.lists(NODES | JOBS | st.integers(0, 6), max_size=40)


def apply(snapshot: Snapshot, change: NodeRow | JobRow | int) -> None:
    match change:
        case NodeRow():
            snapshot.take_node(change, NOW)
        case JobRow():
            snapshot.take_job(change.job_id, change, NOW)
        case _:
            snapshot.take_job(f"j-{change}", None, NOW)


def seen(scene: Scenery) -> dict[str, Any]:
    """All of it, in an order that does not depend on the way."""
    fleet, queue, running, tenants = scene.fleet, scene.queue, scene.running, scene.tenants
    columns: dict[str, Any] = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(fleet).items()
    }
    columns["card_model"] = [fleet.models[code] for code in fleet.card_model.tolist()]
    del columns["models"]
    waiting = {
        job: (
            tenants.names[int(queue.tenant[at])],
            queue.shapes[int(queue.shape[at])],
            None if queue.gate[at] < 0 else queue.gates[int(queue.gate[at])],
            queue.avoid.get(at),
            int(queue.versions[at]),
        )
        for at, job in enumerate(queue.job_ids)
    }
    holders: list[int] = running.member_attempt[running.held_member].tolist()
    held: list[int] = running.held_card.tolist()
    members: list[int] = running.member_attempt.tolist()
    sits: list[int] = running.member_node.tolist()
    assert holders == sorted(holders), "cards are in the order of the members, members in that of the attempts"
    assert members == sorted(members)
    assert running.held_member.tolist() == sorted(running.held_member.tolist())
    runs = {
        "attempts": sorted(
            (job, tenants.names[int(running.tenant[at])], repr(running.shapes[int(running.shape[at])]))
            for at, job in enumerate(running.job_ids)
        ),
        "held": sorted((running.job_ids[attempt], card) for attempt, card in zip(holders, held, strict=True)),
        "members": sorted((running.job_ids[attempt], node) for attempt, node in zip(members, sits, strict=True)),
    }
    shares = {
        name: (int(tenants.used[at]), int(tenants.used_jobs[at]), bool(tenants.known[at]), tenants.pools[at].tolist())
        for at, name in enumerate(tenants.names)
        if tenants.known[at] or tenants.used[at]
    }
    return {"fleet": columns, "waiting": waiting, "runs": runs, "tenants": shares}


@settings(max_examples=150, deadline=None)
@given(CHANGES)
def test_the_way_there_does_not_matter(changes: list[NodeRow | JobRow | int]) -> None:
    wandering = Snapshot()
    for change in changes:
        apply(wandering, change)
        wandering.scenery(KNOWN, RULES, 64, NOW)
    nodes = {change.node: change for change in changes if isinstance(change, NodeRow)}
    jobs: dict[str, JobRow | None] = {}
    for change in changes:
        if isinstance(change, JobRow):
            jobs[change.job_id] = change
        elif isinstance(change, int):
            jobs[f"j-{change}"] = None
    straight = Snapshot()
    for last in (*nodes.values(), *(job for job in jobs.values() if job is not None)):
        apply(straight, last)
    assert seen(wandering.scenery(KNOWN, RULES, 64, NOW)) == seen(straight.scenery(KNOWN, RULES, 64, NOW))
    assert wandering.shapes(RULES) == straight.shapes(RULES)


def test_gates_are_datasets_windows_and_suspended_tenants_and_who_rests_is_left_out() -> None:
    snapshot = Snapshot()
    for job in (_job(2, "acme", None, held=False, rest_s=0), _job(3, "acme", None, held=False, rest_s=0)):
        apply(snapshot, job)
    apply(snapshot, _job(4, "beta", None, held=False, rest_s=0))
    apply(snapshot, _job(5, "acme", None, held=False, rest_s=60))
    queue = snapshot.scenery(KNOWN, RULES, 64, NOW).queue
    gates: dict[str, Reason] = {
        job: queue.gates[int(queue.gate[at])] for at, job in enumerate(queue.job_ids) if queue.gate[at] >= 0
    }
    assert {job: gate.code for job, gate in gates.items()} == {
        "j-2": ReasonCode.WAITING_FOR_DATASET,
        "j-3": ReasonCode.UNKNOWN_WINDOW,
        "j-4": ReasonCode.TENANT_SUSPENDED,
    }
    assert snapshot.next_turn(RULES, NOW) == NOW + timedelta(seconds=60)


@given(st.lists(st.integers(0, 5), max_size=120), st.integers(1, 50))
def test_who_leads_next_knows_the_same_mix(asked: list[int], at_once: int) -> None:
    demands = [Demand((Tier.CENTRAL,), cards=cards) for cards in asked]
    leads, follows = Snapshot(), Snapshot()
    for begin in range(0, len(demands), at_once):
        leads.arrive(demands[begin : begin + at_once])
        leads.learn()
    follows.arrive(demands)
    follows.learn()
    assert leads.mix == follows.mix


def test_a_job_that_is_asked_about_leaves_no_trace() -> None:
    snapshot = Snapshot()
    apply(snapshot, _job(1, "acme", None, held=False, rest_s=0))
    before = seen(snapshot.scenery(KNOWN, RULES, 64, NOW))
    extra = _job(2, "acme", None, held=False, rest_s=0)
    assert set(snapshot.scenery(KNOWN, RULES, 64, NOW, extra).queue.job_ids) == {"j-1", "j-2"}
    assert seen(snapshot.scenery(KNOWN, RULES, 64, NOW)) == before
