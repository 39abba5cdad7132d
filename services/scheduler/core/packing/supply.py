"""What a tier holds of one card model, free and in all: the figures that reasons are made of."""

from dataclasses import dataclass

from contracts.base import Tier


@dataclass(frozen=True)
class Lack:
    """What would be too little even if nothing ran: `asked` > `allowed`. `near`: of what one node, or one area, holds.

    `resource` is `members` where nothing is short in all; `each`: no node has enough for one member. `unknown`: of none
    of the nodes is it known which are `near` to each other.
    """

    resource: str
    asked: int
    allowed: int
    near: str | None = None
    each: bool = False
    unknown: bool = False


@dataclass(frozen=True)
class Supply:
    """Slots count members. `could` nodes would hold a member when empty; `share` is what it takes of each card.

    `slots_total` and `slots_free_by_cards` look at cards alone, the bounded ones also at the `node_slots` of each node.
    `slots_free_by_link` and `slots_free_by_limits` are those that fit by cards and slots, as far as the links, and then
    all assessed limits, of their nodes bear them. `slots_free` look at everything: how many members would find a place
    now, on any nodes, `near_free` so in the best area that is near enough, and `near_empty` if nothing ran. `lack` is
    what keeps the gang from ever being held by the nodes that are ready, and `known` how many members would be if all
    known nodes were. `pools` have ready nodes with which it would be held, and are not for the group that asks.
    `cpu_milli_most` and `memory_bytes_most` are of the node with most of it free, of those that lack nothing else for
    a member: free there, and in all. `share_free` is what cards have free together, partly used ones included
    (millionths).
    """

    tier: Tier
    model: str | None
    share: int
    nodes_known: int
    nodes_ready: int
    cards_total: int
    cards_free: int
    share_free: int
    slots_total: int
    slots_free_by_cards: int
    node_slots: int
    slots_bounded: int
    slots_free_bounded: int
    slots_free_by_link: int
    slots_free_by_limits: int
    slots_free: int
    node_slots_total: int
    node_slots_free: int
    cpu_milli_total: int
    cpu_milli_free: int
    memory_bytes_total: int
    memory_bytes_free: int
    budget_free: int
    link_mbps_free: int
    budget_total: int
    link_mbps_total: int
    near_free: int
    near_empty: int
    lack: Lack | None = None
    known: int = 0
    pools: tuple[str, ...] = ()
    cpu_milli_most: tuple[int, int] = 0, 0
    memory_bytes_most: tuple[int, int] = 0, 0

    @property
    def closeness(self) -> tuple[int, int, int]:
        """Larger where less is missing."""
        return self.slots_free_bounded, self.cards_free, self.nodes_known

    @property
    def never(self) -> bool:
        """Whether the nodes that are ready would not hold the gang even if nothing ran."""
        return self.lack is not None or not self.nodes_ready

    def returns(self, members: int) -> bool:
        """Whether nodes that are not ready would hold the gang, and those that are would never."""
        return self.known >= members and self.never
