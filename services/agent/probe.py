"""What the machine is: processors, memory and cards.

Cards are seen through NVML where a driver is loaded, declared in the settings where not; a node with neither has none.
The library is asked for by its usual name at each probe, so a stand-in on the loader's path is found as well.
"""

import os
from collections.abc import Sequence
from typing import Any, Protocol, cast

import psutil

from contracts.nodes import Card, CardSource, NodeFacts
from services.agent.settings import AgentSettings, DeclaredCard

MAX_CARDS = 1024


class Nvml(Protocol):
    """The part of `pynvml` that is used."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: N802, D102 - NVML's own names
    def nvmlShutdown(self) -> None: ...  # noqa: N802, D102
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802, D102
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...  # noqa: N802, D102
    def nvmlDeviceGetName(self, handle: object) -> str | bytes: ...  # noqa: N802, D102
    def nvmlDeviceGetUUID(self, handle: object) -> str | bytes: ...  # noqa: N802, D102
    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Any: ...  # noqa: N802, D102


def load_nvml() -> Nvml | None:
    """`pynvml`, or None where it is not installed; whether a driver is there shows at its first call."""
    try:
        import pynvml  # noqa: PLC0415 - an extra; most nodes of a test stack have no use for it
    except ImportError:
        return None
    return cast("Nvml", cast("object", pynvml))


def seen_cards(nvml: Nvml | None) -> list[Card]:
    """The cards that the driver shows; none without a driver."""
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        count = min(MAX_CARDS, nvml.nvmlDeviceGetCount())
        return [_seen(nvml, index) for index in range(count)]
    finally:
        nvml.nvmlShutdown()


def declared_cards(node: str, declared: Sequence[DeclaredCard]) -> list[Card]:
    """The cards of the settings, numbered in their order."""
    return [
        Card(
            index=index,
            uuid=f"declared-{node}-{index}",
            model=card.model,
            memory_bytes=card.memory_bytes,
            source=CardSource.DECLARED,
        )
        for index, card in enumerate(declared)
    ]


def facts(settings: AgentSettings, nvml: Nvml | None) -> NodeFacts:
    """All that is announced of this node. Declared cards stand only where NVML shows none."""
    cards = seen_cards(nvml) or declared_cards(settings.node, settings.declared_cards)
    return NodeFacts(
        node=settings.node,
        tier=settings.tier,
        zone=settings.zone,
        address=settings.address,
        version=settings.version,
        cpu_milli=1000 * (os.cpu_count() or 1),
        memory_bytes=psutil.virtual_memory().total,
        cards=cards,
        link_mbps=settings.link_mbps,
    )


def _seen(nvml: Nvml, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return Card(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        source=CardSource.NVML,
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
