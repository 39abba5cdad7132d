"""What follows from a report: which faults a node has, and whether its checks before first work have passed.

In: the node, what the last report left behind, the report, the rules. Out: the node, and what is to be remembered.

Two kinds of fault differ in how they go. One that shows in a counter or a check is there as long as reports show it.
One that an XID told of happened once and lasts: until the machine has booted anew or the card has been reset, where
that is the remedy, and else until an operator says that it is mended. What two reboots did not cure needs hands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict

from contracts.health import CardHealth, CheckResult, NodeReported, Recovery, Verdict
from services.inventory.core import skew
from services.inventory.core.model import Fault, Node, Remedy, Stage
from services.inventory.core.phases import with_faults
from services.inventory.core.rules import Action, CardLimits, HealthRules

WEEK = timedelta(days=7)
BY_MACHINE = {Remedy.RESET, Remedy.REBOOT}
MAX_MARKS = 4096
RESET_REQUIRED = "reset_required"
WELL = {Verdict.PASSED, Verdict.SKIPPED, Verdict.UNKNOWN}


class Tried(BaseModel):
    """A fault, and in how many boots before this one it was seen; forgotten a week after the last."""

    model_config = ConfigDict(frozen=True)

    code: str
    card: str
    boots: int
    last_at: datetime


class PageMark(BaseModel):
    """Double-bit pages of a card at a time: the oldest of the last week, and the newest."""

    model_config = ConfigDict(frozen=True)

    card: str
    at: datetime
    pages: int


class Memory(BaseModel):
    """What one report leaves for the next: counters to compare with, by card uuid."""

    model_config = ConfigDict(frozen=True)

    incarnation: str = ""
    counter: int = 0
    boot: str = ""
    xids: dict[str, dict[int, int]] = {}
    recovery: dict[str, str] = {}
    pages: list[PageMark] = []
    tried: list[Tried] = []


@dataclass(frozen=True, slots=True)
class Examined:
    """A node after a report, and what to remember."""

    node: Node
    memory: Memory


def is_news(node: Node, memory: Memory, report: NodeReported) -> bool:
    """Whether a report is of the agent start in force and newer than the last one taken."""
    if report.incarnation != node.incarnation:
        return False
    return memory.incarnation != report.incarnation or report.counter > memory.counter


def examine(
    node: Node,
    memory: Memory,
    report: NodeReported,
    *,
    prechecks: Iterable[str],
    rules: HealthRules,
    observed_ms: int,
) -> Examined:
    """The node after a report that is news."""
    booted = bool(memory.boot and report.boot_id and report.boot_id != memory.boot)
    tried = _tries(node, memory, report, booted=booted)
    marks = _marks(memory, report)
    faults = {
        fault.key: fault
        for fault in (
            *(fault for fault in node.faults if fault.code == skew.CODE),
            *_lasting(node, memory, report, booted=booted),
            *_happened(memory, report, rules, booted=booted),
            *(fault for card in report.cards for fault in _shown(card, marks, rules.limits)),
            *_checks(report.checks),
        )
    }
    held = {fault.key for fault in node.faults if fault.held}
    counted = [_counted(fault, report, tried, rules.limits.reboots) for fault in faults.values()]
    after = with_faults(node, tuple(replace(one, held=one.key in held) for one in counted), observed_ms)
    left = Memory(
        incarnation=report.incarnation,
        counter=report.counter,
        boot=report.boot_id or memory.boot,
        xids=({} if booted else memory.xids)
        | {card.uuid: {xid.code: xid.count for xid in card.xids} for card in report.cards},
        recovery=({} if booted else memory.recovery)
        | {card.uuid: card.recovery for card in report.cards if card.recovery is not None},
        pages=marks,
        tried=list(tried.values()),
    )
    return Examined(_staged(after, report, prechecks), left)


def mended(node: Node, memory: Memory, observed_ms: int) -> Examined:
    """The node after an operator's word that it is mended: the next report of its agent decides.

    What is measured here, its clock, is not a matter of anybody's word. An agent that never reports is believed.
    """
    measured = tuple(fault for fault in node.faults if fault.code == skew.CODE)
    reports = memory.incarnation == node.incarnation
    after = with_faults(replace(node, stage=Stage.ANNOUNCED if reports else node.stage), measured, observed_ms)
    return Examined(after, memory.model_copy(update={"tried": []}))


# ---- what lasts ------------------------------------------------------------------------------------------------------


def _lasting(node: Node, memory: Memory, report: NodeReported, *, booted: bool) -> Iterator[Fault]:
    uuids = {card.index: card.uuid for card in report.cards}
    now = {card.uuid: card.recovery for card in report.cards}
    for fault in node.faults:
        uuid = uuids.get(-1 if fault.card is None else fault.card, "")
        asked_before = memory.recovery.get(uuid, Recovery.NONE) != Recovery.NONE
        reset = fault.remedy is Remedy.RESET and asked_before and now.get(uuid) == Recovery.NONE
        cured = (booted and fault.remedy in BY_MACHINE) or reset
        if fault.lasting and not cured:
            yield fault


def _happened(memory: Memory, report: NodeReported, rules: HealthRules, *, booted: bool) -> Iterator[Fault]:
    """Faults of XIDs that are more than in the report before; in a new boot all count anew."""
    for card in report.cards:
        before = {} if booted else memory.xids.get(card.uuid, {})
        for xid in card.xids:
            rule = rules.of(xid.code)
            if xid.count <= before.get(xid.code, 0) or rule.farside in {Action.IGNORE, Action.WATCH}:
                continue
            words = f"card {card.index}: XID {xid.code}{f', {rule.words}' if rule.words else ''}"
            yield Fault(
                f"xid_{xid.code}",
                card.index,
                words,
                rule.remedy,
                whole_node=rule.farside is Action.NODE,
                lasting=True,
            )


def _tries(node: Node, memory: Memory, report: NodeReported, *, booted: bool) -> dict[tuple[str, str], Tried]:
    """How many boots each fault has outlived: one more for those that were there when the machine booted."""
    tried = {(one.code, one.card): one for one in memory.tried if report.reported_at - one.last_at < WEEK}
    if not booted:
        return tried
    uuids = {card.index: card.uuid for card in report.cards}
    for fault in node.faults:
        if fault.remedy in BY_MACHINE | {Remedy.INSPECT}:
            uuid = uuids.get(-1 if fault.card is None else fault.card, "")
            boots = tried[fault.code, uuid].boots if (fault.code, uuid) in tried else 0
            tried[fault.code, uuid] = Tried(code=fault.code, card=uuid, boots=boots + 1, last_at=report.reported_at)
    return tried


def _counted(fault: Fault, report: NodeReported, tried: dict[tuple[str, str], Tried], reboots: int) -> Fault:
    """`fault` with its boots; one that so many reboots did not cure is for hands."""
    uuid = next((card.uuid for card in report.cards if card.index == fault.card), "")
    boots = tried[fault.code, uuid].boots if (fault.code, uuid) in tried else 0
    base = fault.words.partition(REMEDY)[0]
    stubborn = boots >= reboots and fault.remedy in BY_MACHINE
    remedy = Remedy.INSPECT if stubborn else fault.remedy
    words = f"{base}{REMEDY}{_REMEDIES[remedy]}" if remedy in _REMEDIES else base
    if boots and remedy in _REMEDIES:
        words += f" (there again after {boots} reboot{'s' if boots > 1 else ''})"
    return replace(fault, words=words, remedy=remedy, tries=boots, lasting=fault.lasting or stubborn)


REMEDY = "; remedy: "
_REMEDIES = {
    Remedy.RESET: "reset the card",
    Remedy.REBOOT: "reboot the node",
    Remedy.CABLING: "look at power and cabling",
    Remedy.REPLACE: "replace the card",
    Remedy.INSPECT: "inspect the hardware",
}


# ---- what shows ------------------------------------------------------------------------------------------------------


def _shown(card: CardHealth, marks: list[PageMark], limits: CardLimits) -> Iterator[Fault]:
    """The faults that the counters of one card show."""
    here = f"card {card.index}: "
    if card.lost or card.fault is not None:
        words = f"{here}its driver answers {card.fault or 'that it knows it no more'}"
        remedy = Remedy.RESET if card.fault == RESET_REQUIRED else Remedy.REBOOT
        yield Fault("card_fault", card.index, words, remedy)
    if (rows := card.remapped_rows) is not None:
        if rows.failed:
            yield Fault("remap_failed", card.index, f"{here}a row could not be remapped", Remedy.REPLACE)
        if rows.pending:
            yield Fault("remap_pending", card.index, f"{here}a row waits to be remapped", Remedy.RESET)
        if (rows.uncorrected or 0) >= limits.remapped_uncorrected:
            words = f"{here}{rows.uncorrected} rows remapped after uncorrectable errors"
            yield Fault("remapped_rows", card.index, f"{words} (limit {limits.remapped_uncorrected})", Remedy.REPLACE)
    yield from _pages(card, marks, limits)
    if (errors := card.link_crc_errors_per_s or 0) >= limits.link_crc_errors_per_s:
        words = f"{here}{errors} link CRC errors a second (limit {limits.link_crc_errors_per_s})"
        yield Fault("link_crc_errors", card.index, words, Remedy.CABLING)
    if (slow := card.hardware_slowdowns or 0) >= limits.hardware_slowdowns:
        words = f"{here}{slow} hardware slowdowns in ten minutes (limit {limits.hardware_slowdowns})"
        yield Fault("hardware_slowdowns", card.index, words, Remedy.CABLING)


def _pages(card: CardHealth, marks: list[PageMark], limits: CardLimits) -> Iterator[Fault]:
    pages = card.retired_pages
    if pages is None:
        return
    here, double = f"card {card.index}: ", pages.double_bit or 0
    total = (pages.single_bit or 0) + double
    if total >= limits.retired_pages:
        words = f"{here}{total} pages retired (limit {limits.retired_pages})"
        yield Fault("retired_pages", card.index, words, Remedy.REPLACE)
    oldest = next((mark.pages for mark in marks if mark.card == card.uuid), double)
    lately = double - oldest
    if double > limits.retired_double_bit and lately > limits.retired_in_a_week:
        words = f"{here}{double} pages retired after double-bit errors, {lately} of them within a week"
        yield Fault("retired_double_bit", card.index, words, Remedy.REPLACE)
    if pages.pending:
        yield Fault("retirement_pending", card.index, f"{here}a page waits to be retired", Remedy.RESET)


def _marks(memory: Memory, report: NodeReported) -> list[PageMark]:
    """The marks of the last week, oldest first; a count that has not changed makes no new one."""
    kept = [mark for mark in memory.pages if report.reported_at - mark.at < WEEK]
    for card in report.cards:
        pages = None if card.retired_pages is None else card.retired_pages.double_bit
        if pages is None:
            continue
        of_card = [mark.pages for mark in kept if mark.card == card.uuid]
        if not of_card or of_card[-1] != pages:
            before = [mark for mark in memory.pages if mark.card == card.uuid]
            if not of_card and before:  # what stood a week ago is where the week begins
                kept.append(PageMark(card=card.uuid, at=report.reported_at, pages=before[-1].pages))
            kept.append(PageMark(card=card.uuid, at=report.reported_at, pages=pages))
    return kept[-MAX_MARKS:]


def _checks(checks: Iterable[CheckResult]) -> Iterator[Fault]:
    for check in checks:
        if check.verdict is Verdict.FAILED:
            detail = f": {check.detail}" if check.detail else ""
            yield Fault(f"check_{check.name}", None, f"check {check.name} failed{detail}"[:500], whole_node=True)


def _staged(node: Node, report: NodeReported, prechecks: Iterable[str]) -> Node:
    """A node whose checks before first work have all passed is checked; its next heartbeat makes it ready."""
    well = {check.name for check in report.checks if check.verdict in WELL}
    if node.stage is Stage.ANNOUNCED and well >= set(prechecks):
        return replace(node, stage=Stage.CHECKED)
    return node
