"""What follows from reports: checks before first work, XIDs, counters, and how faults go again."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.health import CheckResult, Recovery, Verdict
from services.inventory.core.health import is_news, mended
from services.inventory.core.model import Cause, NodeEvent, Remedy, Stage
from services.inventory.core.phases import told
from services.inventory.core.rules import Action
from tests.data import public_data
from tests.unit.inventory.reporting import RULES, Reported, announced, card, failed, pages, passed, rows, xid

# ---- checks before first work ----------------------------------------------------------------------------------------


def test_a_node_is_checked_when_every_check_it_owes_has_passed() -> None:
    at = announced("time_sync", "cards")
    assert at.say(checks=passed("time_sync")) is None
    assert at.stands == ("announced", [])
    move = at.say(checks=passed("time_sync", "cards"))
    assert move is not None
    assert (move.event, move.cause, at.stands[0]) == (NodeEvent.GRADED, Cause.CHECKED, "checked")


@pytest.mark.parametrize("verdict", [Verdict.SKIPPED, Verdict.UNKNOWN])
def test_what_cannot_be_checked_keeps_no_work_away(verdict: Verdict) -> None:
    at = announced("container_runtime")
    at.say(checks=[CheckResult(name="container_runtime", verdict=verdict)])
    assert at.stands[0] == "checked"


def test_a_failed_check_quarantines_until_it_passes() -> None:
    at = announced("time_sync")
    move = at.say(checks=[failed("time_sync", "no server answers")])
    assert move is not None
    assert (move.event, move.reason) == (NodeEvent.QUARANTINED, "check time_sync failed: no server answers")
    assert at.stands[0] == "quarantined"
    back = at.say(checks=passed("time_sync"))
    assert back is not None
    assert (back.event, at.stands[0]) == (NodeEvent.RELEASED, "checked")


def test_a_report_of_another_start_or_an_older_one_is_no_news() -> None:
    at = Reported()
    at.say(card())
    same = at.report(card())
    assert not is_news(at.node, at.memory, same)
    other = same.model_copy(update={"incarnation": "00000000-0000-7000-8000-000000000009", "counter": 9})
    assert not is_news(at.node, at.memory, other)


# ---- XIDs ------------------------------------------------------------------------------------------------------------


def test_xid_79_takes_the_whole_node_out_until_it_has_booted() -> None:
    at = Reported()
    move = at.say(card(0), card(1, xids=[xid(79)]))
    assert move is not None
    assert (move.event, at.stands) == (NodeEvent.QUARANTINED, ("quarantined", [1]))
    assert move.reason == "card 1: XID 79, the card has fallen off the bus; remedy: reboot the node"
    assert at.say(card(0), card(1, xids=[xid(79)])) is None
    assert at.stands == ("quarantined", [1])
    back = at.say(boot="boot-2")
    assert back is not None
    assert (back.event, at.stands) == (NodeEvent.RELEASED, ("ready", []))


def test_a_card_fault_takes_the_card_out_and_the_node_works_on() -> None:
    at = Reported()
    move = at.say(card(0), card(1, xids=[xid(95)]))
    assert move is not None
    assert (move.event, at.stands) == (NodeEvent.QUARANTINED, ("ready", [1]))


def test_faults_of_every_card_take_the_node_out() -> None:
    at = Reported()
    at.say(card(0, xids=[xid(95)]), card(1, xids=[xid(95)]))
    assert at.stands == ("quarantined", [0, 1])


def test_a_reset_card_is_back_when_its_driver_asks_for_nothing_more() -> None:
    at = Reported()
    at.say(card(0), card(1, xids=[xid(95)], recovery=Recovery.RESET))
    back = at.say(card(0), card(1, xids=[xid(95)], recovery=Recovery.NONE))
    assert back is not None
    assert at.stands == ("ready", [])


@pytest.mark.parametrize("code", [13, 31, 43, 63, 94, 154, 99_999])
def test_xids_of_programs_and_unknown_ones_are_watched(code: int) -> None:
    at = Reported()
    assert at.say(card(0, xids=[xid(code, 50)])) is None


def test_two_reboots_that_did_not_cure_ask_for_hands() -> None:
    at = Reported()
    at.say(card(0), card(1, xids=[xid(79)]))
    at.say(card(0), card(1, xids=[xid(79)]), boot="boot-2", hours=1)
    assert at.node.faults[0].remedy is Remedy.REBOOT
    assert at.node.faults[0].words.endswith("(there again after 1 reboot)")
    at.say(card(0), card(1, xids=[xid(79)]), boot="boot-3", hours=1)
    fault = at.node.faults[0]
    assert (fault.remedy, fault.tries) == (Remedy.INSPECT, 2)
    at.say(boot="boot-4", hours=1)
    assert at.stands == ("quarantined", [1]), "a fault for hands does not go by itself"


def test_a_fault_that_is_away_for_a_week_counts_anew() -> None:
    at = Reported()
    at.say(card(0), card(1, xids=[xid(79)]))
    at.say(card(0), card(1, xids=[xid(79)]), boot="boot-2", hours=1)
    at.say(boot="boot-3", hours=1)
    at.say(card(0), card(1, xids=[xid(79)]), hours=24 * 8)
    assert at.node.faults[0].tries == 0


def test_what_an_operator_has_mended_comes_back_only_when_it_happens_again() -> None:
    at = Reported()
    at.say(card(0), card(1, xids=[xid(54)]))
    found = mended(at.node, at.memory, observed_ms=9)
    assert (told(found.node).value, found.node.stage) == ("announced", Stage.ANNOUNCED)
    at.node, at.memory = found.node, found.memory
    at.say(card(0), card(1, xids=[xid(54)]))
    assert at.stands == ("checked", [])
    at.say(card(0), card(1, xids=[xid(54, 2)]))
    assert at.stands[1] == [1]


def test_an_agent_that_never_reports_is_believed_to_be_mended() -> None:
    at = Reported()
    assert mended(at.node, at.memory, observed_ms=9).node.stage is Stage.READY


# ---- counters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "code", "remedy"),
    [
        ({"remapped_rows": rows(pending=True)}, "remap_pending", Remedy.RESET),
        ({"remapped_rows": rows(failed=True)}, "remap_failed", Remedy.REPLACE),
        ({"remapped_rows": rows(uncorrected=512)}, "remapped_rows", Remedy.REPLACE),
        ({"retired_pages": pages(1, 62)}, "retired_pages", Remedy.REPLACE),
        ({"retired_pages": pages(0, pending=True)}, "retirement_pending", Remedy.RESET),
        ({"link_crc_errors_per_s": 100}, "link_crc_errors", Remedy.CABLING),
        ({"hardware_slowdowns": 6}, "hardware_slowdowns", Remedy.CABLING),
        ({"lost": True}, "card_fault", Remedy.REBOOT),
        ({"fault": "reset_required"}, "card_fault", Remedy.RESET),
    ],
)
def test_counters_at_their_limit_take_the_card_out_and_below_it_bring_it_back(
    facts: dict[str, object], code: str, remedy: Remedy
) -> None:
    at = Reported()
    at.say(card(0, **facts), card(1))
    assert (at.codes, at.node.faults[0].remedy, at.stands) == ([code], remedy, ("ready", [0]))
    at.say()
    assert at.stands == ("ready", [])


@pytest.mark.parametrize(
    "facts",
    [
        {"remapped_rows": rows(uncorrected=511, corrected=9_999)},
        {"retired_pages": pages(1, 61)},
        {"link_crc_errors_per_s": 99},
        {"hardware_slowdowns": 5},
        {"remapped_rows": rows()},
        {"retired_pages": None},
    ],
)
def test_counters_below_their_limit_and_unknown_ones_are_no_fault(facts: dict[str, object]) -> None:
    at = Reported()
    assert at.say(card(0, **facts), card(1)) is None


def test_double_bit_pages_count_when_they_grow_within_a_week() -> None:
    at = Reported()
    at.say(card(0, retired_pages=pages(14)), card(1))
    at.say(card(0, retired_pages=pages(16)), card(1), hours=24)
    assert at.codes == ["retired_double_bit"]
    assert "2 of them within a week" in at.node.faults[0].words


def test_double_bit_pages_that_grow_slowly_are_no_fault() -> None:
    at = Reported()
    for count, days in ((15, 0), (16, 6), (17, 6)):
        at.say(card(0, retired_pages=pages(count)), card(1), hours=24 * days)
    assert at.codes == []


def test_a_row_that_waits_through_two_reboots_asks_for_hands() -> None:
    at = Reported()
    for boot in ("boot-1", "boot-2", "boot-3"):
        at.say(card(0, remapped_rows=rows(pending=True)), card(1), boot=boot, hours=1)
    assert at.node.faults[0].remedy is Remedy.INSPECT


def test_a_figure_that_moves_within_the_same_fault_is_no_news() -> None:
    at = Reported()
    assert at.say(card(0, hardware_slowdowns=7), card(1)) is not None
    assert at.say(card(0, hardware_slowdowns=9), card(1)) is None


def test_the_table_of_xids_keeps_its_sources() -> None:
    assert len(RULES.xids) == 57
    assert all(rule.catalogue for rule in RULES.xids)
    watched = {rule.code for rule in RULES.xids if rule.dcgm == "fail"}
    assert watched == {48, 74, 79, 95, 119, 120, 140}
    assert all(RULES.of(code).farside in {Action.CARD, Action.NODE} for code in watched)


@given(
    st.lists(
        st.tuples(st.sampled_from([13, 48, 79, 95]), st.integers(1, 3), st.sampled_from(["b1", "b2", "b3", "b4"])),
        max_size=12,
    )
)
def test_a_quiet_report_after_a_boot_leaves_only_what_needs_hands(story: list[tuple[int, int, str]]) -> None:
    at = Reported()
    for code, count, boot in story:
        at.say(card(0, xids=[xid(code, count)]), card(1), boot=boot, hours=0.1)
    at.say(boot="after", hours=0.1)
    assert all(fault.remedy is Remedy.INSPECT for fault in at.node.faults)
    assert at.say() is None, "the same report again is no news"


def test_the_table_of_xids_is_that_of_the_published_one() -> None:
    lines = [line for line in (public_data("gpu") / "xid.csv").read_text().splitlines() if not line.startswith("#")]
    published = {int(row["xid"]): row["action"] for row in csv.DictReader(lines)}
    assert {rule.code: rule.catalogue for rule in RULES.xids} == published


def test_a_card_that_a_report_leaves_out_is_not_found_faulty_anew_when_it_is_back() -> None:
    at = Reported()
    at.say(card(0), card(1, xids=[xid(54)]))
    at.node = mended(at.node, at.memory, observed_ms=9).node
    at.say(card(0))
    assert at.say(card(0), card(1, xids=[xid(54)])) is None
    assert at.codes == []
