"""What may be used of a remote node: its link, power and cooling, with the headroom taken off.

Only remote nodes have such limits; those of the centre are the cards themselves and the tenants' quotas.
"""

from contracts.base import Tier
from contracts.nodes import NodeFacts, NodeLimits
from services.inventory.core.grading import usable_mbps

STEADY_PCT = 10


def limits(
    facts: NodeFacts, measured_mbps: int | None, card_power_w: int | None, headroom_pct: int
) -> NodeLimits | None:
    """The limits of a remote node, None for any other or where nothing is known of one.

    `measured_mbps` and `card_power_w` (one card at its own limit) are what reports have shown.
    """
    if facts.tier is not Tier.REMOTE:
        return None
    link = [value for value in (facts.link_mbps, usable_mbps(facts.node_link), measured_mbps) if value is not None]
    link_mbps = _kept(min(link, default=None), headroom_pct)
    power_w, heat_w = (_kept(value, headroom_pct) for value in (facts.power_limit_w, facts.heat_limit_w))
    least_w = min((value for value in (power_w, heat_w) if value is not None), default=None)
    cards = None
    if least_w is not None and card_power_w:
        cards = min(len(facts.cards), least_w // card_power_w)
    found = NodeLimits(link_mbps=link_mbps, power_w=power_w, heat_w=heat_w, cards=cards)
    return None if found == NodeLimits() else found


def _kept(value: int | None, headroom_pct: int) -> int | None:
    return None if value is None else value * (100 - headroom_pct) // 100


def assessed(before: int | None, measured: int | None) -> int | None:
    """The figure to go by after a measurement: the one before, unless the new one differs by more than a tenth."""
    if measured is None:
        return before
    if before is not None and abs(measured - before) * 100 <= before * STEADY_PCT:
        return before
    return measured
