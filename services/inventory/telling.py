"""From what the ledger has of a node to what is told of it: completed, graded, limited, with every reason."""

from dataclasses import dataclass

from contracts.nodes import NodePhase, NodeState
from services.inventory.core.facts import completed
from services.inventory.core.grading import Graded, GradingRules, grade
from services.inventory.core.limits import limits
from services.inventory.core.model import Fault, Standing
from services.inventory.rows import Portrait

MAX_REASON_CHARS = 4000


@dataclass(frozen=True)
class Teller:
    """Tells states of nodes by the rules about grades and with the headroom that is kept."""

    grading: GradingRules
    headroom_pct: int

    def graded(self, of: Portrait) -> Graded:
        """What the node is worth."""
        facts = completed(of.facts, of.declared)
        return grade(facts, bad_cards(of), critical=of.critical, rules=self.grading)

    def state(self, of: Portrait) -> NodeState:
        """The node's full state."""
        graded = self.graded(of)
        facts = completed(of.facts, of.declared)
        return NodeState(
            node=of.name,
            version=of.version,
            state=of.told,
            facts=facts,
            incarnation=of.incarnation,
            attempts=of.attempts,
            reason=_reason(of),
            requeue_held=of.requeue_held,
            since=of.since,
            cordoned=of.standing is not Standing.FREE,
            bad_cards=bad_cards(of),
            grade=graded.grade,
            node_class=graded.node_class,
            scarce=graded.scarce,
            limits=limits(facts, of.link_mbps, of.card_power_w, self.headroom_pct),
        )


def bad_cards(of: Portrait) -> list[int]:
    """The cards on which nothing new may be placed."""
    return sorted({fault.card for fault in _acting(of) if fault.card is not None})


def takes_work(of: Portrait) -> bool:
    """Whether anything new may be placed there: it is ready, and no order keeps work away."""
    return of.told is NodePhase.READY and of.standing is Standing.FREE


def _acting(of: Portrait) -> list[Fault]:
    return [fault for fault in of.faults if not fault.held]


def _reason(of: Portrait) -> str:
    """Why the node came to be as it is, and what stands against it still, each once."""
    words = of.reason
    for more in (of.order, *(fault.words for fault in _acting(of))):
        if more and more not in words:
            words = f"{words}; {more}" if words else more
    return words[:MAX_REASON_CHARS]
