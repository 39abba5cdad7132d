"""How a card fares: one look at everything that its driver counts.

In: questions about one card. Out: a `Look`. What the driver does not say is None. Remapped rows are not asked for while
the card is divided into MIG instances, where the driver knows nothing of them; retired pages are the older scheme, of
cards up to Volta, and both are asked for, since the driver knows best which one the card has.
"""

from dataclasses import dataclass
from typing import Any

from contracts.health import CardHealth, Ecc, Recovery, RemappedRows, RetiredPages
from services.agent.probe.driver import Asking
from services.agent.probe.facts import text

TEMPERATURE_OF_CHIP = 0
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
MANY_SINGLE_BIT, DOUBLE_BIT = 0, 1
CRC_FLIT_ERRORS, CRC_DATA_ERRORS, RECOVERY_ACTION = 38, 45, 230
RECOVERIES = {
    0: Recovery.NONE,
    1: Recovery.RESET,
    2: Recovery.REBOOT,
    3: Recovery.DRAIN,
    4: Recovery.DRAIN_RESET,
}
CLOCK_EVENTS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
HARDWARE_SLOWDOWN = 0x8 | 0x40 | 0x80
# Members of NVML's value union, by the type that a field says it has.
FIELD_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
UNKNOWN_UUID = "unknown"


@dataclass(frozen=True)
class Look:
    """One look at one card: what stands at this moment, and what only says something beside other looks."""

    card: CardHealth
    link_crc_errors: int | None = None
    slowed: bool | None = None


def look(asking: Asking, uuid: str | None) -> Look:
    """Ask everything; `uuid` is what the card was called at the agent's start, for when it says it no more."""
    said = asking.ask("nvmlDeviceGetUUID")
    mig = _first(asking.ask("nvmlDeviceGetMigMode"))
    reasons = _clocks(asking)
    fields = _fields(asking)
    memory, rates = asking.ask("nvmlDeviceGetMemoryInfo"), asking.ask("nvmlDeviceGetUtilizationRates")
    crc = [fields[field] for field in (CRC_FLIT_ERRORS, CRC_DATA_ERRORS) if field in fields]
    card = CardHealth(
        index=asking.index,
        uuid=uuid or (UNKNOWN_UUID if said is None else text(said)),
        mig=None if mig is None else bool(mig),
        ecc=_ecc(asking),
        retired_pages=_retired(asking),
        remapped_rows=None if mig else _remapped(asking),
        recovery=_recovery(fields),
        clock_events=[word for bit, word in CLOCK_EVENTS.items() if (reasons or 0) & bit],
        temperature_c=asking.ask("nvmlDeviceGetTemperature", TEMPERATURE_OF_CHIP),
        power_mw=asking.ask("nvmlDeviceGetPowerUsage"),
        power_limit_mw=asking.ask("nvmlDeviceGetEnforcedPowerLimit"),
        utilisation_pct=None if rates is None else min(100, int(rates.gpu)),
        memory_used_bytes=None if memory is None else int(memory.used),
        energy_mj=asking.ask("nvmlDeviceGetTotalEnergyConsumption"),
    )
    found = card.model_copy(update={"fault": asking.fault, "lost": asking.fault == "gpu_is_lost"})
    return Look(found, sum(crc) if crc else None, None if reasons is None else bool(reasons & HARDWARE_SLOWDOWN))


def silent(index: int, uuid: str) -> Look:
    """A card of which the driver gives no answer at all."""
    return Look(CardHealth(index=index, uuid=uuid, fault="no_answer"))


def _first(answer: Any) -> int | None:
    return None if answer is None else int(answer[0])


def _clocks(asking: Asking) -> int | None:
    """Why the clock is held down; drivers before 535 know the question under its older name."""
    found = asking.ask("nvmlDeviceGetCurrentClocksEventReasons")
    return asking.ask("nvmlDeviceGetCurrentClocksThrottleReasons") if found is None else found


def _ecc(asking: Asking) -> Ecc | None:
    counts = [
        asking.ask("nvmlDeviceGetTotalEccErrors", kind, counter)
        for counter in (VOLATILE, AGGREGATE)
        for kind in (CORRECTED, UNCORRECTED)
    ]
    if all(count is None for count in counts):
        return None
    return Ecc(
        volatile_corrected=counts[0],
        volatile_uncorrected=counts[1],
        aggregate_corrected=counts[2],
        aggregate_uncorrected=counts[3],
    )


def _retired(asking: Asking) -> RetiredPages | None:
    pages = [asking.ask("nvmlDeviceGetRetiredPages_v2", cause) for cause in (MANY_SINGLE_BIT, DOUBLE_BIT)]
    pending = asking.ask("nvmlDeviceGetRetiredPagesPendingStatus")
    if pending is None and all(found is None for found in pages):
        return None
    single, double = (None if found is None else len(found) for found in pages)
    return RetiredPages(single_bit=single, double_bit=double, pending=None if pending is None else bool(pending))


def _remapped(asking: Asking) -> RemappedRows | None:
    found = asking.ask("nvmlDeviceGetRemappedRows")
    if found is None:
        return None
    corrected, uncorrected, pending, failed = found
    return RemappedRows(corrected=corrected, uncorrected=uncorrected, pending=bool(pending), failed=bool(failed))


def _fields(asking: Asking) -> dict[int, int]:
    """The values of those fields that this card has."""
    asked = [CRC_FLIT_ERRORS, CRC_DATA_ERRORS, RECOVERY_ACTION]
    found = asking.ask("nvmlDeviceGetFieldValues", asked) or ()
    return {
        int(field.fieldId): int(getattr(field.value, FIELD_VALUES[field.valueType]))
        for field in found
        if field.nvmlReturn == 0 and field.valueType in FIELD_VALUES
    }


def _recovery(fields: dict[int, int]) -> Recovery | str | None:
    action = fields.get(RECOVERY_ACTION)
    return None if action is None else RECOVERIES.get(action, f"action_{action}")
