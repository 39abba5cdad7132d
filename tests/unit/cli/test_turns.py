"""What commands make of the scheduler's answers about its queue; the answers are the contracts' own examples."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contracts.base import Priority, Reason, ReasonCode, Tier
from contracts.jobs import AttemptState, JobPhase, JobReprioritize, JobSpec, JobState, Member, Outcome, Resources
from contracts.queue import DryRunReply, ExplainReply, Forecast, Leaving, QueuePage, QuotaPage, Verdict
from contracts.requests import JobReply
from libs.cli import dryrun, explain, main, orders, queue, quota, why, words
from libs.cli.errors import USAGE

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "contracts" / "examples"
NOW = datetime(2026, 11, 30, 8, 0, 13, tzinfo=UTC)
NODE_REASON = Reason(code=ReasonCode.WAITING_FOR_NODES, message="no ready node")


def example(request: str, name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((EXAMPLES / f"query.scheduler.{request}.v1" / f"{name}.json").read_text())
    return read


def waiting() -> ExplainReply:
    return ExplainReply.model_validate(example("explain", "good-waiting")["reply"])


def trial(**changes: object) -> DryRunReply:
    return DryRunReply.model_validate(example("dry_run", "good-waits")["reply"] | changes)


def job(**changes: object) -> JobState:
    body: dict[str, Any] = example("dry_run", "good-waits")["body"]["spec"]
    state = JobState(
        job_id=body["job_id"],
        tenant="acme",
        spec=JobSpec.model_validate(body),
        version=4,
        state=JobPhase.RUNNING,
        attempt=AttemptState(
            number=2, generation=1, members=[Member(index=0, node="c-1", tier=Tier.CENTRAL, cards=[0])]
        ),
        submitted_at=NOW,
        updated_at=NOW,
    )
    return state.model_copy(update=changes)


def test_why_a_job_waits_in_words() -> None:
    told = dict(explain.lines(waiting()))
    assert told["binds"] == "cards"
    assert told["short"] == "1 card"
    assert told["frees"] == "an end of a job that holds such cards"
    assert told["priority"] == "normal"
    assert told["share"].startswith("37.5 % of what all tenants used of late and hold")
    assert told["turn"] == "3 of 17 waiting jobs"
    assert told["expected"].startswith("2026-11-30 09:00:12Z: job 01a22b77-feb0")
    assert told["kept for it"] == "central-1"


def test_who_holds_what_is_short() -> None:
    rows = [dict(zip(explain.HEADERS, explain.leaving_row(one), strict=True)) for one in waiting().leaving]
    assert rows[0]["CARDS"] == "1 card"
    assert rows[0]["LEAVES"] == "2026-11-30 09:00:12Z"
    assert rows[0]["TENANT"] == "acme"
    assert (rows[1]["CARDS"], rows[1]["LEAVES"], rows[1]["JOB"]) == ("0.25 cards", "open", "of another tenant")
    stopping = Leaving(node="n", card_milli=2000, leaves_at=NOW, stopping=True)
    assert explain.leaving_row(stopping)[2] == "2026-11-30 08:00:13Z, stopping"


def test_a_start_that_nothing_tells() -> None:
    assert explain.expected(None) == "nothing tells"
    assert explain.expected(Forecast(basis="no node could")) == "nothing tells: no node could"
    assert explain.expected(Forecast(basis="not known: no node could")) == "nothing tells: no node could"
    assert explain.soon(Forecast(), NOW) == ""
    assert explain.soon(Forecast(starts_at=NOW - timedelta(seconds=5)), NOW) == "now"
    assert explain.soon(Forecast(starts_at=NOW + timedelta(minutes=5)), NOW) == "in 5m"


def test_every_reason_to_wait_says_what_frees_it() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text()
    _, _, section = page.partition("## A job that waits")
    codes = [line.split("`")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert len(codes) > 10
    assert [code for code in codes if not explain.frees_by_code(Reason(code=ReasonCode(code), message=""))] == []
    assert explain.frees_by_code(Reason(code="of_a_newer_version", message="")) == ""
    assert explain.frees_by_code(None) == ""


def test_what_the_scheduler_says_of_a_remedy_goes_before_what_the_code_does() -> None:
    assert explain.frees(waiting().model_copy(update={"frees": "fewer members"})) == "fewer members"
    held = waiting().model_copy(update={"reason": Reason(code=ReasonCode.ON_HOLD, message="")})
    assert explain.frees(held) == f"`farside job release {held.job_id}`"
    assert explain.as_json(held)["frees"] == explain.frees(held)


def test_why_in_json_has_the_newer_reason_and_the_forecast() -> None:
    state = job(state=JobPhase.WAITING, attempt=None, reason=NODE_REASON)
    told = why.explained(JobReply(job=state, transitions=[]), waiting())
    assert told["reason"] == "waiting_for_cards"
    assert (told["constraint"], told["short"], told["position"], told["waiting"]) == ("cards", 1, 3, 17)
    assert (told["priority"], told["members"], told["cards"], told["share_milli"]) == ("normal", 2, 2, None)
    assert told["tenant_share_milli"] == 375
    assert told["as_of"] == "2026-11-30T08:00:13+00:00"
    bare = why.explained(JobReply(job=state, transitions=[]), None)
    assert bare["reason"] == "waiting_for_nodes"
    assert "forecast" not in bare


def test_a_trial_that_waits_tells_as_why_does() -> None:
    spec = job().spec
    told = dict(dryrun.lines(trial(), spec))
    assert told["verdict"] == "would be taken: waits"
    assert told["amounts"] == "used 3 cards, asked 2 cards, allowed 4 cards"
    assert told["turn"] == "18 of 18 waiting jobs"
    machine = dryrun.told(trial(), spec)
    assert (machine["verdict"], machine["reason"], machine["short"]) == ("waits", "waiting_for_cards", 1)


def test_a_trial_that_would_be_placed_says_where() -> None:
    said = DryRunReply.model_validate(example("dry_run", "good-placed")["reply"])
    assert said.verdict == Verdict.PLACED
    told = dict(dryrun.lines(said, job().spec))
    assert told["verdict"] == "would be placed"
    assert f"{said.members[0].node} (cards " in told["on"]
    assert "expected" not in told


def test_a_trial_that_would_be_refused() -> None:
    reason = Reason(code=ReasonCode.QUOTA_EXCEEDED, message="too much", resource="gpu_ms", asked=7_200_000)
    said = trial(verdict="refused", reason=reason.model_dump())
    assert dryrun.refusal(said, job().spec) == (
        "job digits-gang would be refused, quota_exceeded: too much (asked 2 GPU-hours)"
    )
    assert dryrun.refusal(trial(verdict="refused", reason=None), job().spec) == "job digits-gang would be refused"


def test_a_row_of_the_queue() -> None:
    page = QueuePage.model_validate(example("queue", "good-page")["reply"])
    shown = dict(zip(queue.HEADERS, queue.row(page.jobs[0], NOW), strict=True))
    assert (shown["TURN"], shown["ASKS"], shown["WAITS"]) == ("1", "1 x 2 cards", "1s")
    assert (shown["PRIORITY"], shown["SHARE"]) == ("normal", "37.5 %")
    part = page.jobs[0].model_copy(update={"cards": 1, "share_milli": 250})
    assert dict(zip(queue.HEADERS, queue.row(part, NOW), strict=True))["ASKS"] == "1 x 0.25 cards"
    lost = page.jobs[0].model_copy(update={"submitted_at": NOW - timedelta(hours=9), "waits_since": NOW})
    assert dict(zip(queue.HEADERS, queue.row(lost, NOW), strict=True))["WAITS"] == "0s"
    assert page.jobs[0].job_id.startswith(shown["JOB"])
    assert (shown["REASON"], shown["EXPECTED"]) == ("waiting_for_cards", "in 59m")


def test_rows_of_a_quota() -> None:
    tenant = QuotaPage.model_validate(example("quota", "good-acme")["reply"]).tenants[0]
    rows = [dict(zip(quota.HEADERS, quota.row(tenant, line), strict=True)) for line in tenant.lines]
    assert (rows[0]["USED"], rows[0]["COMMITTED"], rows[0]["LEFT"]) == ("1 h", "2 h", "47 h")
    assert (rows[1]["LEFT"], rows[1]["GUARANTEED"], rows[1]["BORROWED"]) == ("7 cards", "8 cards", "1 card")
    assert [row["RESOURCE"] for row in rows] == ["GPU-hours a month", "cards at a time", "jobs at a time"]
    assert (rows[2]["USED"], rows[2]["LIMIT"], rows[2]["GUARANTEED"]) == ("2 jobs", "20 jobs", "")
    assert quota.remarks(tenant) == ["acme may also use pool vision"]
    suspended = tenant.model_copy(update={"suspended": True, "pools": []})
    assert quota.remarks(suspended) == ["acme is suspended: none of its jobs is placed"]


def test_a_quota_that_was_lowered_under_what_runs_shows_by_how_much() -> None:
    tenant = QuotaPage.model_validate(example("quota", "good-acme")["reply"]).tenants[0]
    lowered = tenant.lines[1].model_copy(update={"limit": 8000})
    assert dict(zip(quota.HEADERS, quota.row(tenant, lowered), strict=True))["LEFT"] == "over by 1 card"


def test_what_waits_takes_no_cards_from_what_is_left() -> None:
    tenant = QuotaPage.model_validate(example("quota", "good-acme")["reply"]).tenants[0]
    crowded = tenant.lines[1].model_copy(update={"committed": 100_000})
    shown = dict(zip(quota.HEADERS, quota.row(tenant, crowded), strict=True))
    assert (shown["COMMITTED"], shown["LEFT"]) == ("100 cards", "7 cards")


def test_a_quota_of_two_tenants_at_once_is_refused() -> None:
    result = CliRunner().invoke(main.cli, ["quota", "acme", "--tenant", "beta"])
    assert result.exit_code == USAGE
    assert "TENANT is 'acme' and --tenant 'beta': name one" in result.output


def test_amounts_of_cards() -> None:
    assert words.amount(1500, "card_milli") == "1.5 cards"
    assert words.amount(250_000, "card_millionths") == "0.25 cards"
    assert (words.amount(2, "members_per_rack"), words.amount(1, "members_per_rack")) == (
        "2 members per rack",
        "1 member per rack",
    )
    assert (words.amount(1, "cards"), words.amount(0, "cards"), words.amount(1, "cpu_milli")) == (
        "1 card",
        "0 cards",
        "1 cpu_milli",
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cards": 2, "accelerator": "H200"}, "2 cards of H200"),
        ({"cards": 1, "accelerators": ["A100", "H200"]}, "1 card of A100 or H200"),
        ({"cards": 1, "accelerators": ["A100", "H200", "a100", "A100"]}, "1 card of A100 or H200"),
        ({"cards": 1, "share_milli": 500}, "0.5 cards"),
        ({"cards": 1, "share_memory_bytes": 10 * 2**30}, "10.0 GiB of a card"),
        ({}, "0 cards"),
        ({"cpu_milli": 500, "memory_bytes": 2**30, "huge_pages_bytes": 2**30}, "500 cpu_milli, 2.0 GiB"),
        ({"cards": 1, "cpu_milli": 500}, "1 card, 500 cpu_milli"),
    ],
)
def test_what_a_member_asks_for(asked: dict[str, object], said: str) -> None:
    assert words.asked(3, Resources.model_validate(asked)) == f"3 x {said}"


def test_what_a_hold_means() -> None:
    assert not orders.is_held(job())
    assert orders.held_words(job(held=True)) == (
        "running and held: attempt 2 goes on, and the job is not placed again until "
        "`farside job release 01a22b78-3d30-7e17-80d0-d0bf52527df9`"
    )
    assert orders.held_words(job(state=JobPhase.HELD, held=True, attempt=None)) == "held"
    assert orders.is_held(job(state=JobPhase.HELD))
    over = job(state=JobPhase.FINISHED, outcome=Outcome.SUCCEEDED)
    assert orders.is_held(over)
    assert orders.held_words(over) == "finished: succeeded"


def test_a_job_that_runs_and_is_held_says_so() -> None:
    assert dict(why.summary(job(held=True), NOW))["held"] == "not placed again until `farside job release`"
    assert dict(why.summary(job(state=JobPhase.HELD, held=True), NOW))["held"] == ""


@pytest.mark.parametrize(
    ("changes", "answers"),
    [
        ({"version": 4}, False),
        ({"version": 5}, False),
        ({"version": 5, "refused": NODE_REASON}, True),
        ({"version": 5, "outcome": Outcome.CANCELLED}, True),
        ({"version": 5, "job_id": "another"}, False),
    ],
)
def test_which_event_answers_a_new_class(changes: dict[str, object], answers: bool) -> None:  # noqa: FBT001 - a row
    order = JobReprioritize(job_id=job().job_id, priority=Priority.BATCH)
    assert orders.answers_order(job(**changes), order, 4) is answers


def test_a_new_class_answers_itself() -> None:
    spec = job().spec.model_copy(update={"priority": Priority.BATCH})
    order = JobReprioritize(job_id=job().job_id, priority=Priority.BATCH)
    assert orders.answers_order(job(version=5, spec=spec), order, 4)


@pytest.mark.parametrize(
    ("changes", "held", "released"),
    [
        ({"held": True}, True, False),
        ({"state": JobPhase.HELD, "held": True}, True, False),
        ({}, False, True),
        ({"state": JobPhase.FINISHED, "outcome": Outcome.SUCCEEDED}, True, True),
    ],
)
def test_neither_a_hold_nor_a_release_of_a_job_that_is_over_is_waited_for(
    changes: dict[str, object], *, held: bool, released: bool
) -> None:
    assert (orders.is_held(job(**changes)), orders.is_released(job(**changes))) == (held, released)
