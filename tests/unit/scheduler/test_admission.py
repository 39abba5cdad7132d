"""What becomes a job and what does not."""

from dataclasses import replace

import pytest

from contracts.base import INT64_MAX, Priority, Reason, ReasonCode, Tier
from contracts.jobs import DatasetRef
from services.scheduler.core.admission import CardGroup, NodeShape, Terms, no_such_node, refusal, share_milli
from services.scheduler.core.images import Bound
from services.scheduler.core.quota import Quotas, Standing, Tenant, commit_ms
from services.scheduler.memory.tenancy import reach_cards
from services.scheduler.policies import Cohort, Rules
from tests.unit.scheduler.builders import GB, NOW, spec

ACME = Tenant("acme", 1, Quotas(10**12, 64, 10, Priority.ONLINE))
CENTRAL = NodeShape(Tier.CENTRAL, 32_000, 256 * GB, (CardGroup("H100", 80 * GB, 4), CardGroup("A100", 40 * GB, 2)))
REMOTE = NodeShape(Tier.REMOTE, 4000, 16 * GB, (CardGroup("T4", 16 * GB, 1),))


def code(reason: Reason | None) -> str | None:
    return None if reason is None else reason.code


def test_a_good_job_is_taken() -> None:
    assert refusal(spec(), ACME, Terms((CENTRAL, REMOTE)), Standing(), NOW) is None


def test_an_unknown_tenant() -> None:
    assert code(refusal(spec(), None, Terms(()), Standing(), NOW)) is ReasonCode.UNKNOWN_TENANT


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
    assert code(refusal(spec(**changes), ACME, Terms((CENTRAL, REMOTE)), Standing(), NOW)) is wanted


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
    reason = refusal(spec(members=members, resources={"cards": cards}), tenant, Terms((big,)), Standing(), NOW)
    assert (None if reason is None else reason.resource) == resource


@pytest.mark.parametrize("shapes", [(), (CENTRAL, REMOTE)])
def test_memory_that_no_figure_holds_is_refused_before_any_node_is_known(shapes: tuple[NodeShape, ...]) -> None:
    """Each quantity fits its field; their sum would not fit the placer's arrays and end every cycle."""
    job = spec(resources={"memory_bytes": INT64_MAX, "huge_pages_bytes": 1})
    reason = refusal(job, ACME, Terms(shapes), Standing(), NOW)
    assert code(reason) is ReasonCode.INVALID
    assert reason is not None
    assert (reason.resource, reason.allowed) == ("memory_bytes", INT64_MAX)
    job = spec(resources={"memory_bytes": INT64_MAX - 1, "huge_pages_bytes": 1})
    assert refusal(job, ACME, Terms(()), Standing(), NOW) is None


@pytest.mark.parametrize(
    ("resources", "resource"),
    [
        ({"cards": 4}, None),
        ({"cards": 5}, "cards"),
        ({"cards": 3, "accelerator": "a100"}, "cards"),
        ({"cards": 2, "accelerator": "a100"}, None),
        ({"cards": 1, "accelerator": "B900"}, "cards"),
        ({"cards": 1, "memory_per_card_bytes": 81 * GB}, "card_memory_bytes"),
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
    assert refusal(fits, huge, Terms(()), Standing(), NOW) is None
    reason = refusal(spec(members=4096, resources={"cards": 64}, max_runtime_s=60), huge, Terms(()), Standing(), NOW)
    assert code(reason) is ReasonCode.INVALID


# ---- what came later: windows, images, pools, limits, shares ---------------------------------------------------------


def test_a_window_that_nobody_has_defined() -> None:
    terms = Terms((CENTRAL,), frozenset({"nights"}))
    assert refusal(spec(window="nights"), ACME, terms, Standing(), NOW) is None
    reason = refusal(spec(window="noon"), ACME, terms, Standing(), NOW)
    assert code(reason) is ReasonCode.UNKNOWN_WINDOW
    assert reason is not None
    assert "window noon is not in the policy file (it has nights)" in reason.message


def test_a_window_where_none_is_defined() -> None:
    reason = refusal(spec(window="noon"), ACME, Terms((CENTRAL,)), Standing(), NOW)
    assert code(reason) is ReasonCode.UNKNOWN_WINDOW
    assert reason is not None
    assert reason.message == (
        "window noon is not known: no windows are defined; leave `window` out, or have an operator define it under "
        "`windows` in the policy file (FARSIDE_POLICY)"
    )


def test_cards_that_are_too_small_are_told_by_their_memory() -> None:
    asked = {"cards": 2, "accelerators": ["A100", "a100"], "memory_per_card_bytes": 80 * GB}
    reason = no_such_node(spec(resources=asked), (CENTRAL, REMOTE))
    assert reason is not None
    assert (reason.code, reason.resource) == (ReasonCode.NO_SUCH_NODE_TYPE, "card_memory_bytes")
    assert (reason.asked, reason.allowed) == (80 * GB, 40 * GB)
    assert "asks 2 A100 cards with 80 GiB each, the largest that is known has 40 GiB" in reason.message


@pytest.mark.parametrize(
    ("listed", "reference", "taken"),
    [
        (None, None, True),
        (None, "registry.example/any:1", True),
        (("registry.example/vision/*",), "registry.example/vision/train:1", True),
        (("registry.example/vision/*",), "registry.example/other/train:1", False),
        (("registry.example/vision/*",), None, False),
        ((), "registry.example/vision/train:1", False),
    ],
)
def test_a_tenant_with_a_list_of_images_runs_no_other(
    listed: tuple[str, ...] | None, reference: str | None, *, taken: bool
) -> None:
    image = None if reference is None else {"reference": reference}
    tenant = replace(ACME, images=listed)
    reason = refusal(spec(image=image), tenant, Terms(()), Standing(), NOW)
    assert code(reason) == (None if taken else ReasonCode.IMAGE_NOT_ALLOWED)
    if reason is not None:
        said = "may run those of its file: registry.example/vision/*" if listed else "may run none: its file lists none"
        assert reason.message.endswith(said)


def test_of_many_patterns_of_images_the_first_are_named() -> None:
    tenant = replace(ACME, images=tuple("abcdef"))
    reason = refusal(spec(), tenant, Terms(()), Standing(), NOW)
    assert reason is not None
    assert reason.message == ("the job names no image, tenant acme may run those of its file: a, b, c, d and 2 more")


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ({}, None),
        ({"commit": "0d6c2cf7", "dataset": {"name": "digits", "version": "1"}}, None),
        ({"commit": "ffffffff"}, "stands for commit 0d6c2cf7 since job j, this job says ffffffff"),
        ({"dataset": {"name": "digits", "version": "2"}}, "stands for dataset digits version 1 since job j"),
    ],
)
def test_a_tag_stands_for_one_commit_and_one_dataset_version(image: dict[str, object], said: str | None) -> None:
    bound = Bound("j", "0d6c2cf7", DatasetRef(name="digits", version="1"))
    job = spec(image={"reference": "registry.example/train:1", **image})
    reason = refusal(job, ACME, Terms((), image=bound), Standing(), NOW)
    assert said is None if reason is None else said is not None and said in reason.message


def test_an_image_made_for_another_dataset_than_the_job_reads() -> None:
    image = {"reference": "registry.example/train:1", "dataset": {"name": "digits", "version": "1"}}
    job = spec(image=image, dataset={"name": "digits", "version": "2"})
    assert code(refusal(job, ACME, Terms(()), Standing(), NOW)) is ReasonCode.IMAGE_NOT_ALLOWED


def test_nodes_of_other_tenants_pools_do_not_exist_for_a_tenant() -> None:
    pooled = replace(CENTRAL, pool="vision")
    small = replace(CENTRAL, cards=(CardGroup("H100", 80 * GB, 1),))
    reason = refusal(spec(), ACME, Terms((pooled, small, replace(small, pool="tiny"))), Standing(), NOW)
    assert reason is not None
    assert reason.code is ReasonCode.NO_SUCH_NODE_TYPE
    assert reason.message.endswith("; pool vision has such nodes, but the tenant's file does not name that pool")
    nowhere = refusal(spec(), ACME, Terms((small, replace(small, pool="tiny"))), Standing(), NOW)
    assert nowhere is not None
    assert "pool" not in nowhere.message
    vision = replace(ACME, pools=("vision",))
    assert refusal(spec(), vision, Terms((pooled, small)), Standing(), NOW) is None


@pytest.mark.parametrize(
    ("resources", "resource"),
    [
        ({"cards": 1}, None),
        ({"cards": 2}, "cards"),
        ({"cards": 1, "link_mbps": 700}, None),
        ({"cards": 1, "link_mbps": 701}, "link_mbps"),
    ],
)
def test_work_beyond_the_assessed_limit_of_remote_nodes_is_refused(
    resources: dict[str, object], resource: str | None
) -> None:
    limited = NodeShape(Tier.REMOTE, 8000, 64 * GB, (CardGroup("T4", 16 * GB, 4),), limit_cards=1, link_mbps=700)
    reason = refusal(spec(kind="batch", resources=resources), ACME, Terms((limited,)), Standing(), NOW)
    assert code(reason) == (ReasonCode.BEYOND_LIMIT if resource else None)
    assert reason is None or reason.resource == resource


def test_a_suspended_tenant_submits_nothing() -> None:
    reason = refusal(spec(), replace(ACME, suspended=True), Terms(()), Standing(), NOW)
    assert code(reason) is ReasonCode.TENANT_SUSPENDED


def test_more_cards_than_guarantee_and_borrowing_together_are_refused_by_that_name() -> None:
    tenant = Tenant("acme", 1, Quotas(10**12, 64, 10, Priority.ONLINE, guarantee=4, limit=6))
    assert refusal(spec(members=3), tenant, Terms(()), Standing(), NOW) is None
    reason = refusal(spec(members=4), tenant, Terms(()), Standing(), NOW)
    assert code(reason) is ReasonCode.EXCEEDS_LARGEST_QUOTA
    assert reason is not None
    assert (reason.used, reason.asked, reason.allowed) == (None, 8, 6)
    few = replace(tenant, quotas=replace(tenant.quotas, cards=7, limit=None))
    reason = refusal(spec(members=4), few, Terms(()), Standing(), NOW)
    assert reason is not None
    assert (reason.code, reason.used, reason.asked, reason.allowed) == (ReasonCode.QUOTA_EXCEEDED, None, 8, 7)
    assert reason.message.startswith("tenant acme asks 8 cards at a time, its quota is 7: ")


def test_more_cards_than_a_whole_cohort_could_lend_are_refused() -> None:
    tenants = {
        name: Tenant(name, 1, Quotas(10**12, 64, 10, Priority.ONLINE, guarantee=cards), cohort=cohort)
        for name, cards, cohort in (("acme", 2, "a"), ("beta", 4, "b"), ("other", 8, None))
    }
    rules = Rules(cohorts={"a": Cohort("all"), "b": Cohort("all"), "all": Cohort()})
    assert reach_cards(rules, tenants, tenants["acme"]) == 6
    assert reach_cards(rules, tenants, tenants["other"]) is None
    assert reach_cards(replace(rules, cohorts={"a": Cohort()}), tenants, tenants["acme"]) == 2
    low = replace(rules, cohorts={**rules.cohorts, "all": Cohort(ceiling_cards=5)})
    assert reach_cards(low, tenants, tenants["acme"]) == 5
    assert refusal(spec(members=3), tenants["acme"], Terms((), reach_cards=6), Standing(), NOW) is None
    reason = refusal(spec(members=4), tenants["acme"], Terms((), reach_cards=6), Standing(), NOW)
    assert code(reason) is ReasonCode.EXCEEDS_LARGEST_QUOTA


@pytest.mark.parametrize(
    ("resources", "milli"),
    [
        ({"cards": 2}, 1000),
        ({"cards": 1, "share_milli": 250}, 250),
        ({"cards": 1, "share_memory_bytes": 4 * GB}, 250),
        ({"cards": 1, "share_memory_bytes": 4 * GB, "accelerator": "H100"}, 50),
        ({"cards": 1, "share_memory_bytes": 1}, 1),
    ],
)
def test_a_share_counts_as_it_may_be_charged_at_most(resources: dict[str, object], milli: int) -> None:
    shapes = (CENTRAL, NodeShape(Tier.CENTRAL, 8000, 64 * GB, (CardGroup("T4", 16 * GB, 1),)))
    job = spec(resources=resources, max_runtime_s=100)
    assert share_milli(job, shapes) == milli
    assert commit_ms(job, milli) == job.resources.cards * 100 * milli
