"""What becomes of a job that does not fit now: room that victims leave, room kept for later, or only a reason."""

from dataclasses import dataclass

from contracts.base import Reason
from services.scheduler.core import stays
from services.scheduler.core.arrays import NEVER, Preemption, Reservation
from services.scheduler.core.order import Turn
from services.scheduler.core.scene import Scene


@dataclass(frozen=True)
class Wait:
    """Why a job waits, when it may start, and what that rests on."""

    reason: Reason
    starts_us: int = NEVER
    basis: str = ""


class Blocked:
    """Answers for jobs whose turn came and for whom there was no place."""

    def __init__(self, scene: Scene, asked: list[int]) -> None:
        self._scene = scene
        self._asked = asked
        self._reasons: dict[tuple[int, int], Reason] = {}
        self.preemptions: list[Preemption] = []
        self.reservations: list[Reservation] = []

    def barred(self, turn: Turn, end_us: int) -> Wait | None:
        """Why a job may not even look for a place, though its tenant's bounds allow it."""
        del turn, end_us
        return None

    def wait(self, turn: Turn, end_us: int) -> Wait:
        """What the job waits for."""
        del end_us
        return Wait(self._reason(turn))

    def _reason(self, turn: Turn) -> Reason:
        """Made once for each shape."""
        scene, shape = self._scene, int(self._scene.queue.shape[turn.job])
        group = scene.keeping.group(turn.tenant)
        if (shape, group) not in self._reasons:
            demand = scene.queue.shapes[shape]
            supply = scene.room.supply(demand, scene.keeping.usable(group))
            self._reasons[shape, group] = stays.explain(demand, supply)
        return self._reasons[shape, group]
