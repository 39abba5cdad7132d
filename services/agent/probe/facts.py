"""What the machine is: processors, memory and cards.

Cards are seen through NVML where a driver is loaded, declared in the settings where not; a node with neither has none.
A card that does not even tell its UUID and memory is no part of the node; the health report names it.
"""

import os
import threading
from collections.abc import Sequence

import psutil

from contracts.nodes import Card, CardSource, NodeFacts
from libs.kit.logs import get_logger
from services.agent import proctree
from services.agent.probe import checks
from services.agent.probe.driver import Asking, Driver
from services.agent.settings import AgentSettings, DeclaredCard


def facts(settings: AgentSettings, driver: Driver) -> NodeFacts:
    """All that is announced of this node. Declared cards stand only where NVML shows none, not where it hangs."""
    seen = _seen_within(driver, settings.driver_s)
    cards = [] if seen is None else seen or declared_cards(settings.node, settings.declared_cards)
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
        generation=settings.generation,
        rack=settings.rack,
        card_link=settings.card_link,
        node_link=settings.node_link,
        cost=settings.cost,
        power_limit_w=settings.power_limit_w,
        heat_limit_w=settings.heat_limit_w,
        boot_id=proctree.boot_id(),
        prechecks=list(checks.NAMES),
    )


def seen_cards(driver: Driver) -> list[Card]:
    """The cards that the driver shows; none without a driver."""
    return [card for asking in driver.cards() if (card := _seen(asking)) is not None]


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


def _seen_within(driver: Driver, limit_s: float) -> list[Card] | None:
    """The cards that the driver shows; None when it has not said so in time, as when a card of it is dying."""
    found: list[Card] = []
    asking = threading.Thread(target=lambda: found.extend(seen_cards(driver)), name="facts", daemon=True)
    asking.start()
    asking.join(limit_s)
    if not asking.is_alive():
        return found
    get_logger().error("cards.driver_hangs", after_s=limit_s)
    return None


def text(value: str | bytes) -> str:
    """What NVML says in words; its Python package gave bytes once."""
    return value.decode() if isinstance(value, bytes) else value


def _seen(asking: Asking) -> Card | None:
    uuid, model = asking.ask("nvmlDeviceGetUUID"), asking.ask("nvmlDeviceGetName")
    memory = asking.ask("nvmlDeviceGetMemoryInfo")
    if uuid is None or model is None or memory is None:
        get_logger().error("card.not_announced", card=asking.index, fault=asking.fault)
        return None
    return Card(
        index=asking.index,
        uuid=text(uuid),
        model=text(model),
        memory_bytes=int(memory.total),
        source=CardSource.NVML,
    )
