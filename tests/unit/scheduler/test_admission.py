"""What becomes a job and what does not."""

import pytest

from contracts.base import INT64_MAX, Priority, Reason, ReasonCode, Tier
from services.scheduler.core.admission import CardGroup, NodeShape, no_such_node, refusal
from services.scheduler.core.quota import Quotas, Standing, Tenant
from tests.unit.scheduler.builders import GB, NOW, spec

ACME = Tenant("acme", 1, Quotas(10**12, 64, 10, Priority.ONLINE))
CENTRAL = NodeShape(Tier.CENTRAL, 32_000, 256 * GB, (CardGroup("H100", 80 * GB, 4), CardGroup("A100", 40 * GB, 2)))
REMOTE = NodeShape(Tier.REMOTE, 4000, 16 * GB, (CardGroup("T4", 16 * GB, 1),))


def code(reason: Reason | None) -> str | None:
    return None if reason is None else reason.code


def test_a_good_job_is_taken() -> None:
    assert refusal(spec(), ACME, (CENTRAL, REMOTE), Standing(), NOW) is None


def test_an_unknown_tenant() -> None:
    assert code(refusal(spec(), None, (), Standing(), NOW)) is ReasonCode.UNKNOWN_TENANT


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"max_runtime_s": 3600}, None),
        ({"max_runtime_s": 3601}, ReasonCode.CHECKPOINT_REQUIRED),
        ({"max_runtime_s": 3601, "kind": "fine_tuning"}, ReasonCode.CHECKPOINT_REQUIRED),
        ({"max_runtime_s": 3601, "checkpoint": {"interval_steps": 100}}, None),
        ({"max_runtime_s": 7200, "kind": "batch", "resources": {"cards": 1}}, None),
    ],
)
def test_long_training_must_be_able_to_resume(changes: dict[str, object], wanted: ReasonCode | None) -> None:
    assert code(refusal(spec(**changes), ACME, (CENTRAL, REMOTE), Standing(), NOW)) is wanted


@pytest.mark.parametrize(
    ("members", "cards", "resource"),
    [(512, 8, None), (700, 0, None), (3000, 0, "offers_bytes"), (4096, 0, "members_bytes"), (700, 8, "offers_bytes")],
)
def test_a_gang_whose_offers_no_transaction_should_write_is_refused(
    members: int, cards: int, resource: str | None
) -> None:
    """Each member's offer lists all members: 3,000 of them are more than 1 GB, whatever cards they ask for."""
    tenant = Tenant("acme", 1, Quotas(10**15, 10**6, 10, Priority.ONLINE))
    big = NodeShape(Tier.CENTRAL, 32_000, 256 * GB, (CardGroup("H100", 80 * GB, 8),))
    reason = refusal(spec(members=members, resources={"cards": cards}), tenant, (big,), Standing(), NOW)
    assert (None if reason is None else reason.resource) == resource


@pytest.mark.parametrize("shapes", [(), (CENTRAL, REMOTE)])
def test_memory_that_no_figure_holds_is_refused_before_any_node_is_known(shapes: tuple[NodeShape, ...]) -> None:
    """Each quantity fits its field; their sum would not fit the placer's arrays and end every cycle."""
    job = spec(resources={"memory_bytes": INT64_MAX, "huge_pages_bytes": 1})
    reason = refusal(job, ACME, shapes, Standing(), NOW)
    assert code(reason) is ReasonCode.INVALID
    assert reason is not None
    assert (reason.resource, reason.allowed) == ("memory_bytes", INT64_MAX)
    job = spec(resources={"memory_bytes": INT64_MAX - 1, "huge_pages_bytes": 1})
    assert refusal(job, ACME, (), Standing(), NOW) is None


@pytest.mark.parametrize(
    ("resources", "resource"),
    [
        ({"cards": 4}, None),
        ({"cards": 5}, "cards"),
        ({"cards": 3, "accelerator": "a100"}, "cards"),
        ({"cards": 2, "accelerator": "a100"}, None),
        ({"cards": 1, "accelerator": "B900"}, "cards"),
        ({"cards": 1, "memory_per_card_bytes": 81 * GB}, "cards"),
        ({"cards": 1, "cpu_milli": 32_001}, "cpu_milli"),
        ({"cards": 1, "memory_bytes": 200 * GB, "huge_pages_bytes": 57 * GB}, "memory_bytes"),
    ],
)
def test_cards_that_no_node_has(resources: dict[str, object], resource: str | None) -> None:
    reason = no_such_node(spec(resources=resources), (CENTRAL, REMOTE))
    assert code(reason) is (ReasonCode.NO_SUCH_NODE_TYPE if resource else None)
    if reason is not None:
        assert reason.resource == resource
        assert reason.asked is not None
        assert reason.allowed is not None
        assert reason.asked > reason.allowed


def test_only_the_tiers_that_a_kind_may_use_count() -> None:
    batch = spec(kind="batch", resources={"cards": 2})
    assert code(no_such_node(batch, (CENTRAL, REMOTE))) is ReasonCode.NO_SUCH_NODE_TYPE


def test_the_message_names_what_there_is() -> None:
    reason = no_such_node(spec(resources={"cards": 1, "accelerator": "B900"}), (CENTRAL,))
    assert reason is not None
    assert "B900" in reason.message
    assert "A100, H100" in reason.message


def test_while_no_node_is_known_jobs_wait() -> None:
    assert no_such_node(spec(resources={"cards": 64}), ()) is None


def test_before_any_node_of_its_tiers_is_known_the_others_tell_what_exists() -> None:
    assert no_such_node(spec(resources={"cards": 1}), (REMOTE,)) is None
    assert code(no_such_node(spec(resources={"cards": 1, "accelerator": "B900"}), (REMOTE,))) is not None


def test_a_gang_whose_list_of_members_would_not_fit_a_message() -> None:
    huge = Tenant("acme", 1, Quotas(10**18, 10**9, 10, Priority.ONLINE))
    fits = spec(members=640, resources={"cards": 8}, max_runtime_s=60)
    assert refusal(fits, huge, (), Standing(), NOW) is None
    reason = refusal(spec(members=4096, resources={"cards": 64}, max_runtime_s=60), huge, (), Standing(), NOW)
    assert code(reason) is ReasonCode.INVALID
