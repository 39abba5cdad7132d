"""Words for people: amounts with units, ages."""

from datetime import UTC, datetime

from contracts.base import Reason
from contracts.jobs import CARD_MILLI, CARD_MILLIONTHS, Resources

HOUR_MS = 3_600_000
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
KIB = 1024
AS_WRITTEN = frozenset({"cpu_milli", "link_mbps"})
CARD_PARTS = {"card_milli": CARD_MILLI, "card_millionths": CARD_MILLIONTHS}


def size(value: float) -> str:
    """Bytes in the largest binary unit that keeps a digit before the point."""
    unit = 0
    while value >= KIB and unit < len(BYTE_UNITS) - 1:
        value /= KIB
        unit += 1
    return f"{value:.0f} {BYTE_UNITS[unit]}" if unit == 0 else f"{value:.1f} {BYTE_UNITS[unit]}"


def count(number: int, noun: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def moment(at: datetime, precision: str = "seconds") -> str:
    """`2026-11-30 09:00:00Z`; `precision` is that of isoformat."""
    return at.astimezone(UTC).isoformat(sep=" ", timespec=precision).replace("+00:00", "Z")


def age(since: datetime, now: datetime) -> str:
    """`12s`, `5m`, `3h`, `2d`: how long ago `since` was."""
    seconds = max(0, int((now - since).total_seconds()))
    for length, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def amount(value: int, resource: str | None) -> str:
    """An amount with its unit: `gpu_ms` in hours, parts of cards in cards, bytes in binary units, `_s` in seconds."""
    if resource is None or resource in AS_WRITTEN:
        return f"{value} {resource or ''}".rstrip()
    if resource.endswith("gpu_ms"):
        return f"{value / HOUR_MS:.4g} GPU-hours"
    if resource in CARD_PARTS:
        return f"{value / CARD_PARTS[resource]:g} card{'' if value == CARD_PARTS[resource] else 's'}"
    if resource.endswith("bytes"):
        return size(value)
    if resource.endswith("_s"):
        return f"{value} s"
    noun, per, area = resource.replace("_", " ").partition(" per ")
    return f"1 {noun.removesuffix('s')}{per}{area}" if value == 1 else f"{value} {noun}{per}{area}"


def figures(reason: Reason) -> str:
    """`used 0 cards, asked 2 cards, allowed 1 card`, as far as the reason carries figures."""
    parts = (("used", reason.used), ("asked", reason.asked), ("allowed", reason.allowed))
    return ", ".join(f"{name} {amount(value, reason.resource)}" for name, value in parts if value is not None)


def hours(milliseconds: int) -> str:
    """`4999.87 h`, `3 h`: to the hundredth."""
    return f"{milliseconds / HOUR_MS:.2f}".rstrip("0").rstrip(".") + " h"


def percent(milli: int | None) -> str:
    """`37.5 %`; nothing where it is not known."""
    return "" if milli is None else f"{milli / 10:g} %"


def cards(number: int, share_milli: int | None = None, share_memory_bytes: int | None = None) -> str:
    """`2 cards`, `0.5 cards`, `10.0 GiB of a card`."""
    if share_memory_bytes is not None:
        return f"{size(share_memory_bytes)} of a card"
    return count(number, "card") if share_milli is None else amount(share_milli, "card_milli")


def asked(members: int, each: Resources) -> str:
    """`2 x 1 card of H200, 500 cpu_milli, 4.0 GiB`: what a job asks of nodes."""
    models = [each.accelerator] if each.accelerator else each.accelerators or []
    kind = f" of {' or '.join(models)}" if models else ""
    host = [("cpu_milli", each.cpu_milli), ("memory_bytes", each.memory_bytes + each.huge_pages_bytes)]
    beside = [amount(value, name) for name, value in host if value]
    taken = (
        [f"{cards(each.cards, each.share_milli, each.share_memory_bytes)}{kind}"] if each.cards or not beside else []
    )
    return f"{members} x {', '.join([*taken, *beside])}"
