"""Health: what looks say together, when a report is due, checks, and patience with a driver that hangs."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.health import CardHealth, CheckResult, ClockFacts, NodeReported, Recovery, RemappedRows, Verdict, Xid
from contracts.nodes import Card, CardSource
from libs.bus import SqliteLedger
from services.agent import xidbook
from services.agent.core.health import MINUTE_S, CardHistory, due
from services.agent.patience import Patience
from services.agent.probe import checks

AT = datetime(2026, 11, 30, 9, tzinfo=UTC)
WELL = CardHealth(index=0, uuid="GPU-0", temperature_c=40, power_mw=1, utilisation_pct=5)
PASSED = CheckResult(name="disk_space", verdict=Verdict.PASSED, detail="9 GiB free")
REPORT = NodeReported(
    node="n",
    incarnation="00000000-0000-7000-8000-000000000001",
    counter=1,
    cards=[WELL],
    checks=[PASSED],
    reported_at=AT,
)


def add(history: CardHistory, at_s: float, **look: Any) -> CardHealth:
    card = WELL.model_copy(update={"utilisation_pct": look.pop("used", None)})
    return history.add(card, look.pop("errors", None), slowed=look.pop("slowed", None), at_s=at_s)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_utilisation_is_the_mean_since_the_last_report(used: list[int]) -> None:
    history = CardHistory()
    add(history, 0, used=100)
    history.reported()
    found = [add(history, at, used=one) for at, one in enumerate(used, 1)][-1]
    assert found.utilisation_pct == round(sum(used) / len(used))


def test_link_errors_are_a_rate_between_two_looks_and_unknown_where_the_counter_began_anew() -> None:
    history = CardHistory()
    assert add(history, 0, errors=500).link_crc_errors_per_s is None
    assert add(history, 10, errors=1500).link_crc_errors_per_s == 100
    assert add(history, 20, errors=3).link_crc_errors_per_s is None
    assert add(history, 30, errors=3).link_crc_errors_per_s == 0
    assert add(history, 40).link_crc_errors_per_s is None


def test_slowdowns_are_the_minutes_of_the_last_ten_that_saw_one() -> None:
    history = CardHistory()
    assert add(history, 0).hardware_slowdowns is None, "a card whose driver does not say"
    found = [add(history, second, slowed=True) for second in range(0, 6 * 60, 10)]
    assert found[-1].hardware_slowdowns == 6
    assert add(history, 9 * MINUTE_S, slowed=False).hardware_slowdowns == 6
    assert add(history, 12 * MINUTE_S, slowed=False).hardware_slowdowns == 3
    assert add(history, 30 * MINUTE_S, slowed=True).hardware_slowdowns == 1


WEIGHTY: list[dict[str, Any]] = [
    {"lost": True},
    {"fault": "reset_required"},
    {"xids": [Xid(code=79, count=1, first_at=AT, last_at=AT)]},
    {"remapped_rows": RemappedRows(pending=True)},
    {"recovery": Recovery.RESET},
    {"hardware_slowdowns": 1},
    {"mig": True},
]


@pytest.mark.parametrize("change", WEIGHTY)
def test_what_may_change_a_judgement_is_told_at_once(change: dict[str, Any]) -> None:
    changed = REPORT.model_copy(update={"cards": [WELL.model_copy(update=change)]})
    assert due(changed, REPORT, 1.0, 300.0)
    assert not due(changed, changed, 1.0, 300.0)


def test_what_moves_all_the_time_waits_for_the_next_report() -> None:
    warmer = WELL.model_copy(update={"temperature_c": 70, "power_mw": 2, "utilisation_pct": 99, "clock_events": ["x"]})
    less = PASSED.model_copy(update={"detail": "8 GiB free"})
    moved = REPORT.model_copy(update={"cards": [warmer], "checks": [less]})
    assert not due(moved, REPORT, 299.0, 300.0)
    assert due(moved, REPORT, 300.0, 300.0)
    assert due(REPORT, None, 0.0, 300.0), "the first one always"


def test_a_check_that_comes_out_otherwise_is_told_at_once() -> None:
    failed = REPORT.model_copy(update={"checks": [PASSED.model_copy(update={"verdict": Verdict.FAILED})]})
    assert due(failed, REPORT, 1.0, 300.0)
    unsynced = REPORT.model_copy(update={"clock": ClockFacts(synchronised=False)})
    assert due(unsynced, REPORT, 1.0, 300.0)


@pytest.mark.parametrize(
    ("found", "required", "verdict"),
    [
        (ClockFacts(synchronised=True, source="chrony"), True, Verdict.PASSED),
        (ClockFacts(synchronised=False, source="systemd"), True, Verdict.FAILED),
        (ClockFacts(synchronised=False, source="systemd"), False, Verdict.UNKNOWN),
        (ClockFacts(source="kernel"), True, Verdict.UNKNOWN),
    ],
)
def test_a_clock_is_wrong_only_where_a_time_service_says_so(
    found: ClockFacts,
    required: bool,  # noqa: FBT001 - a parameter of the table
    verdict: Verdict,
) -> None:
    assert checks.time_sync(found, required=required).verdict == verdict


CHRONY = """Reference ID    : A29FC87B (162.159.200.123)
Stratum         : 4
System time     : 1.250400000 seconds {way} of NTP time
Leap status     : {leap}
"""


@pytest.mark.parametrize(
    ("tool", "prints", "found"),
    [
        ("chronyc", CHRONY.format(way="slow", leap="Normal"), ClockFacts(synchronised=True, offset_ms=-1250)),
        ("chronyc", CHRONY.format(way="fast", leap="Not synchronised"), ClockFacts(synchronised=False, offset_ms=1250)),
        ("timedatectl", "NTP=yes\nNTPSynchronized=no\n", ClockFacts(synchronised=False)),
        ("timedatectl", "NTP=yes\nNTPSynchronized=yes\n", ClockFacts(synchronised=True)),
    ],
)
def test_a_time_service_is_asked_by_its_own_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, prints: str, found: ClockFacts
) -> None:
    (tmp_path / "said").write_text(prints)
    program = tmp_path / tool
    program.write_text(f'#!/bin/sh\nwhile IFS= read -r line; do echo "$line"; done < {tmp_path / "said"}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    clock = checks.clock()
    assert (clock.synchronised, clock.offset_ms) == (found.synchronised, found.offset_ms)
    assert clock.source == {"chronyc": "chrony", "timedatectl": "systemd"}[tool]


def test_without_a_time_service_the_kernel_is_asked_and_never_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    clock = checks.clock()
    assert clock.source == "kernel"
    assert clock.synchronised in {True, None}


def test_attempts_need_room_and_a_folder_that_can_be_written(tmp_path: Path) -> None:
    assert checks.disk_space(tmp_path, 1).verdict is Verdict.PASSED
    full = checks.disk_space(tmp_path, 1 << 60)
    assert full.verdict is Verdict.FAILED
    assert "GiB wanted" in full.detail
    gone = checks.disk_space(tmp_path / "gone", 1)
    assert (gone.verdict, "cannot be written" in gone.detail) == (Verdict.FAILED, True)


def test_cards_are_checked_where_a_driver_shows_them(tmp_path: Path) -> None:
    seen = Card(index=0, uuid="GPU-0", model="H200", memory_bytes=1, source=CardSource.NVML)
    declared = seen.model_copy(update={"source": CardSource.DECLARED})
    lost = WELL.model_copy(update={"fault": "gpu_is_lost"})
    assert checks.cards([seen], [WELL], tmp_path).verdict is Verdict.PASSED
    assert checks.cards([declared], [], tmp_path).verdict is Verdict.SKIPPED
    assert checks.cards([], [], tmp_path).verdict is Verdict.SKIPPED
    failed = checks.cards([seen], [lost], tmp_path)
    assert (failed.verdict, failed.detail) == (Verdict.FAILED, "card 0: gpu_is_lost")
    (tmp_path / "nvidia0").touch()
    assert checks.cards([], [], tmp_path).verdict is Verdict.FAILED, "cards without a driver"


async def test_a_question_that_hangs_is_given_up_and_none_other_is_begun_meanwhile() -> None:
    patience: Patience[int] = Patience("test", 0.05)
    end, asked = threading.Event(), list[int]()

    def hang() -> int:
        asked.append(1)
        end.wait(30)
        return 1

    for _ in range(3):
        with pytest.raises(TimeoutError):
            await patience.ask(hang)
    assert asked == [1]
    end.set()
    while True:
        try:
            assert await patience.ask(lambda: 2) == 2
        except TimeoutError:
            await asyncio.sleep(0)
        else:
            break


async def test_what_a_question_raises_comes_to_whoever_asks() -> None:
    patience: Patience[int] = Patience("test", 30.0)
    with pytest.raises(ZeroDivisionError):
        await patience.ask(lambda: 1 // 0)


async def test_xids_are_counted_since_boot_and_forgotten_with_the_next(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "agent.db", "/farside/agent/n", "services.agent")
    later = AT.replace(hour=10)
    async with ledger.transaction() as tx:
        for code, at in ((79, AT), (13, AT), (79, later)):
            xidbook.note(tx.conn, "boot-1", "GPU-0", code, at)
    async with ledger.transaction() as tx:
        assert xidbook.since_boot(tx.conn, "boot-1") == {
            "GPU-0": [
                Xid(code=13, count=1, first_at=AT, last_at=AT),
                Xid(code=79, count=2, first_at=AT, last_at=later),
            ]
        }
        xidbook.note(tx.conn, "boot-2", "GPU-1", 48, later)
        assert list(xidbook.since_boot(tx.conn, "boot-2")) == ["GPU-1"]
        assert xidbook.since_boot(tx.conn, "boot-1") == {}
    ledger.close()
