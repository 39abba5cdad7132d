"""The probe through the real nvidia-ml-py: its very calls, answered by a compiled stand-in for the driver's library."""

import ctypes
from pathlib import Path

import pytest

from contracts.health import Ecc, Recovery, RemappedRows, RetiredPages
from contracts.nodes import CardSource
from tests.nvml.conftest import Cards
from tests.nvml.probed import probed
from tests.nvml.stub import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    H200,
    LIBRARY,
    RESET_REQUIRED,
    UNKNOWN_ERROR,
    V100,
    uuid,
)


def test_a_card_is_announced_and_looked_at(cards: Cards) -> None:
    _, probe = cards(H200, H200)
    [first, second], [health, other] = probe.look()
    assert (first.index, first.uuid, first.model) == (0, uuid(0), "NVIDIA H200")
    assert (first.memory_bytes, first.source) == (141 << 30, CardSource.NVML)
    assert (second.index, other.uuid) == (1, uuid(1))
    assert (health.fault, health.lost, health.mig) == (None, False, False)
    assert (health.temperature_c, health.power_mw, health.power_limit_mw) == (51, 312_500, 700_000)
    assert (health.utilisation_pct, health.memory_used_bytes, health.energy_mj) == (40, 3 << 30, 9_876_543)
    assert health.ecc == Ecc(
        volatile_corrected=0, volatile_uncorrected=0, aggregate_corrected=7, aggregate_uncorrected=0
    )
    assert health.remapped_rows == RemappedRows(corrected=1, uncorrected=0, pending=False, failed=False)
    assert health.retired_pages is None, "the older scheme, which this card does not have"
    assert (health.recovery, health.clock_events) == (Recovery.NONE, ["sw_power_cap"])


def test_what_changes_is_seen_at_the_next_look(cards: Cards) -> None:
    stub, probe = cards(H200)
    stub.change(0, remapped_pending=1, remapped_failed=1, remapped_uncorrected=513, clocks=0x8 | 0x40)
    stub.change(0, **{"field.230": 2, "field.38": 70, "field.45": 50})
    said = probe.ask("look")
    [health] = said["health"]
    assert health["remapped_rows"] == {"corrected": 1, "uncorrected": 513, "pending": True, "failed": True}
    assert health["clock_events"] == ["hw_slowdown", "hw_thermal_slowdown"]
    assert (health["recovery"], said["errors"], said["slowed"]) == ("reboot", [120], [True])


@pytest.mark.parametrize(("action", "word"), [(0, "none"), (1, "reset"), (4, "drain_reset"), (7, "action_7")])
def test_the_recovery_that_the_driver_asks_for_is_told_in_words(cards: Cards, action: int, word: str) -> None:
    _, probe = cards({**H200, "field.230": action})
    [health] = probe.look()[1]
    assert health.recovery == word


def test_an_old_card_under_an_old_driver_says_what_it_has_and_nothing_else(cards: Cards) -> None:
    _, probe = cards(V100, driver="old")
    said = probe.ask("look")
    [health] = said["health"]
    assert health["retired_pages"] == {"single_bit": 3, "double_bit": 1, "pending": True}
    assert health["ecc"] == {
        "volatile_corrected": 0,
        "volatile_uncorrected": 2,
        "aggregate_corrected": None,
        "aggregate_uncorrected": None,
    }
    absent = ("remapped_rows", "energy_mj", "mig", "recovery", "fault", "power_limit_mw")
    assert {health[name] for name in absent} == {None}, "what the driver lacks is unknown, and no fault"
    assert (said["errors"], said["slowed"]) == ([None], [False]), "clocks go by their older name there"


def test_a_function_that_the_driver_does_not_find_is_a_gap_and_no_fault(cards: Cards) -> None:
    stub, probe = cards(H200)
    for function in ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEccErrors"):
        stub.fails(0, FUNCTION_NOT_FOUND, function)
    [health] = probe.look()[1]
    assert (health.remapped_rows, health.temperature_c, health.ecc) == (None, None, None)
    assert (health.fault, health.power_mw) == (None, 312_500)


def test_an_error_of_one_question_is_no_fault_of_the_card(cards: Cards) -> None:
    stub, probe = cards(H200)
    stub.fails(0, UNKNOWN_ERROR, "nvmlDeviceGetTotalEnergyConsumption")
    [health] = probe.look()[1]
    assert (health.fault, health.energy_mj, health.temperature_c) == (None, None, 51)
    stub.fails(0, UNKNOWN_ERROR, "nvmlDeviceGetMemoryInfo")
    [health] = probe.look()[1]
    assert health.fault == "unknown_error"


def test_pages_without_a_count_are_no_zero(cards: Cards) -> None:
    _, probe = cards({**V100, "retired.single": 0, "retired.double": 0}, {**H200, "retired.pending": 0})
    older, newer = probe.look()[1]
    assert older.retired_pages == RetiredPages(single_bit=0, double_bit=0, pending=True)
    assert newer.retired_pages == RetiredPages(single_bit=None, double_bit=None, pending=False)


def test_a_lost_card_is_told_beside_one_that_is_well(cards: Cards) -> None:
    stub, probe = cards(H200, H200)
    stub.fails(0, GPU_IS_LOST)
    lost, well = probe.look()[1]
    assert (lost.index, lost.lost, lost.fault) == (0, True, "gpu_is_lost")
    assert (lost.temperature_c, lost.ecc, lost.memory_used_bytes) == (None, None, None)
    assert (well.lost, well.fault, well.temperature_c) == (False, None, 51)


def test_a_card_that_is_lost_before_the_agent_starts_is_not_announced_and_is_told(cards: Cards) -> None:
    _, probe = cards({**H200, "fail.nvmlDeviceGetHandleByIndex_v2": GPU_IS_LOST}, H200)
    announced, health = probe.look()
    assert [card.index for card in announced] == [1]
    assert [(card.index, card.fault) for card in health] == [(0, "gpu_is_lost"), (1, None)]


@pytest.mark.parametrize(("code", "fault"), [(RESET_REQUIRED, "reset_required"), (UNKNOWN_ERROR, "unknown_error")])
def test_other_faults_are_no_loss_of_the_card(cards: Cards, code: int, fault: str) -> None:
    stub, probe = cards(H200)
    stub.fails(0, code)
    [health] = probe.look()[1]
    assert (health.fault, health.lost) == (fault, False)


def test_a_card_that_comes_back_is_well_again(cards: Cards) -> None:
    stub, probe = cards(H200)
    stub.fails(0, GPU_IS_LOST)
    probe.look()
    del stub.cards[0]["fail"]
    stub.write()
    [health] = probe.look()[1]
    assert (health.fault, health.lost, health.temperature_c) == (None, False, 51)


def test_a_driver_that_was_unloaded_and_loaded_is_opened_again(cards: Cards) -> None:
    stub, probe = cards(H200)
    stub.fails(0, 9)
    [gone] = probe.look()[1]
    assert gone.fault == "driver_not_loaded"
    stub.general["fail.nvmlInitWithFlags"] = 9
    stub.write()
    assert probe.look()[1] == []
    del stub.general["fail.nvmlInitWithFlags"], stub.cards[0]["fail"]
    stub.write()
    [back] = probe.look()[1]
    assert (back.fault, back.temperature_c) == (None, 51)


def test_rows_of_a_card_in_pieces_are_not_asked_for(cards: Cards) -> None:
    _, probe = cards({**H200, "mig": 1})
    [health] = probe.look()[1]
    assert (health.mig, health.remapped_rows) == (True, None)


def test_xids_are_heard_with_their_card(cards: Cards) -> None:
    stub, probe = cards(H200, {**H200, "events": 0}, H200)
    stub.xid(2, 79)
    assert probe.ask("xids") == [[2, 79]]
    stub.xid(0, 48)
    assert probe.ask("xids") == [[0, 48]]


def test_listening_goes_on_after_the_event_set_broke(cards: Cards) -> None:
    stub, probe = cards(H200)
    stub.xid(0, 13)
    assert probe.ask("xids") == [[0, 13]]
    stub.general["fail.nvmlEventSetWait_v2"] = GPU_IS_LOST
    stub.write()
    assert probe.look()[1], "the driver answers meanwhile"
    del stub.general["fail.nvmlEventSetWait_v2"]
    stub.xid(0, 79)
    assert probe.ask("xids") == [[0, 79]]


def test_a_machine_without_a_driver_has_no_cards(tmp_path: Path, cards: Cards) -> None:
    stub, _ = cards()
    with probed({**stub.env, "LD_LIBRARY_PATH": str(tmp_path / "nowhere")}) as probe:
        assert probe.look() == ([], [])


def _real_library() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _real_library(), reason=f"no NVIDIA driver here: {LIBRARY} is not on the loader's path")
def test_the_same_probe_on_the_machines_own_driver() -> None:
    import os  # noqa: PLC0415 - of this one test

    with probed(os.environ) as probe:
        announced, health = probe.look()
    assert announced, "a driver without cards"
    assert [card.uuid for card in health] == [card.uuid for card in announced]
    for card, seen in zip(announced, health, strict=True):
        assert card.uuid.startswith("GPU-")
        assert card.memory_bytes > 1 << 30
        assert (seen.fault, seen.lost) == (None, False)
        assert seen.temperature_c is not None
        assert 5 <= seen.temperature_c <= 110
        assert seen.memory_used_bytes is not None
        assert seen.memory_used_bytes <= card.memory_bytes
        assert seen.power_mw is None or seen.power_mw > 1000
        assert seen.remapped_rows is not None or seen.retired_pages is not None or seen.mig
