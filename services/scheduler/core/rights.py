"""Which attempts may be asked to leave for whom, and by which right."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from services.scheduler.core.arrays import CARD, NEVER, Bools, PreemptWhy
from services.scheduler.core.patience import holding
from services.scheduler.core.policy import MAX_STAGES, Order
from services.scheduler.core.scene import Scene
from services.scheduler.core.work import Work


class Rights:
    """Which attempts may be stopped for a job of `tenant` with class `rank`.

    - Preemptible work of a lower class, of its own tenant, or of another as far as that stays at its guarantee; and of
      a later stage of its class, once that has had its cards for a turn; and, of its class and stage, what tenants who
      have had more hold for long.
    - If the job stays `inside` the guarantee of its tenant: any work of tenants above theirs. What is borrowed is given
      back even when it is not preemptible, whatever its class.
    - Preemptible work of its own class in other tenants that has held most of its kind of cards for long.

    Only what may be told to leave at all (`Work.stoppable`), and nothing that holds its turn after a long wait.
    """

    def __init__(self, scene: Scene, work: Work, tenant: int, rank: int, *, inside: bool) -> None:
        running, accounts = work.running, scene.accounts
        count = len(scene.tenants.names)
        excess = np.array([accounts.excess(at) for at in range(count)], dtype=np.int64)[running.tenant]
        if scene.policy.order is Order.PRIORITY:
            excess = np.full(work.count, NEVER, dtype=np.int64)
        self._excess, self._cards, self._tenant = excess, work.cards, running.tenant
        other = running.tenant != tenant
        turn_over = scene.now_us - running.placed_us >= scene.policy.turn_s * 1_000_000
        self._class_below: Bools = running.rank // MAX_STAGES > rank // MAX_STAGES
        lower = (running.rank > rank) & running.preemptible & (self._class_below | turn_over)
        self._own = ~other & lower
        self._lent = other & (lower | uneven(scene, work, tenant, rank))
        self._due = other & (inside & (excess > 0) & (work.cards > 0)) & (scene.policy.order is Order.FAIR)
        same = running.rank // MAX_STAGES == rank // MAX_STAGES
        self._overdue = other & same & running.preemptible & overstaying(scene, work)
        there = self._own | (self._lent & (excess >= work.cards)) | self._due | self._overdue
        self.eligible: Bools = there & work.stoppable & ~(other & holding(scene, work))

    def allow(self, attempts: Sequence[int]) -> bool:
        """Whether all of these may leave together."""
        return self.reasons(attempts) is not None

    def reasons(self, attempts: Sequence[int]) -> dict[int, PreemptWhy] | None:
        """By which right each leaves, the smaller first; None if one has to stay."""
        gone: Counter[int] = Counter()
        found: dict[int, PreemptWhy] = {}
        for attempt in sorted(attempts, key=lambda attempt: (int(self._cards[attempt]), attempt)):
            tenant = int(self._tenant[attempt])
            why = self._why(attempt, gone[tenant])
            if why is None:
                return None
            found[attempt] = why
            gone[tenant] += int(self._cards[attempt])
        return found

    def _why(self, attempt: int, gone: int) -> PreemptWhy | None:
        """By which right an attempt leaves after `gone` of its tenant's cards have left; None without one."""
        within = self._lent[attempt] and self._excess[attempt] - gone >= self._cards[attempt]
        if self._own[attempt] or within:
            return PreemptWhy.PRIORITY if self._class_below[attempt] else PreemptWhy.TURN
        if self._due[attempt] and self._excess[attempt] > gone:
            return PreemptWhy.GUARANTEE
        return PreemptWhy.TURN if self._overdue[attempt] else None


def uneven(scene: Scene, work: Work, tenant: int, rank: int) -> Bools:
    """Preemptible work of this class and stage, or a later stage, held for `hold_s` by tenants with a larger share."""
    running, accounts = work.running, scene.accounts
    if scene.policy.order is not Order.FAIR or scene.policy.hold_share >= 1:
        return np.zeros(work.count, dtype=np.bool_)
    more = np.array([accounts.share(at) > accounts.share(tenant) for at in range(len(scene.tenants.names))])
    long = scene.now_us - running.placed_us >= scene.policy.hold_s * 1_000_000
    same = (running.rank // MAX_STAGES == rank // MAX_STAGES) & (running.rank >= rank)
    return more[running.tenant] & long & same & running.preemptible


def overstaying(scene: Scene, work: Work) -> Bools:
    """Attempts that have held more than `hold_share` of their kind of cards for longer than `hold_s`."""
    running, fleet, policy = work.running, scene.fleet, scene.policy
    if policy.hold_share >= 1 or not len(running.held_card):
        return np.zeros(work.count, dtype=np.bool_)
    kind = fleet.tier[fleet.card_node] * max(1, len(fleet.models)) + fleet.card_model
    size = np.bincount(kind)[kind]
    mine = np.zeros(work.count, dtype=np.int64)
    mine[running.member_attempt[running.held_member]] = size[running.held_card]
    long = scene.now_us - running.placed_us >= policy.hold_s * 1_000_000
    return long & (mine > 0) & (work.cards > policy.hold_share * mine * CARD)
