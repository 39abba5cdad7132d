"""What becomes of a notification after each kind of answer."""

from datetime import timedelta

import pytest

from services.alerting.core.delivery import Again, Answered, Delivered, Park, Patience, Unanswered, judge
from tests.unit.alerting.make import NOW

PATIENCE = Patience(first_s=1, cap_s=60, give_up_s=3600)
DOWN = Unanswered("127.0.0.1:9 cannot be reached: ConnectionRefusedError")


def _judge(answer: Answered | Unanswered, tries: int = 0, after_s: float = 0) -> Delivered | Again | Park:
    now = NOW + timedelta(seconds=after_s)
    return judge(answer, tries=tries, queued_at=NOW, now=now, patience=PATIENCE)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_taken(status: int) -> None:
    assert _judge(Answered(status)) == Delivered()


@pytest.mark.parametrize("answer", [DOWN, Answered(500), Answered(503, "busy\n now"), Answered(429)])
def test_tried_again_with_growing_capped_delays(answer: Answered | Unanswered) -> None:
    delays: list[float] = []
    for tries in (0, 1, 2, 30):
        fate = _judge(answer, tries)
        assert isinstance(fate, Again)
        delays.append((fate.due_at - NOW).total_seconds())
    assert delays == [1, 2, 4, 60]


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
def test_parked_at_once(status: int) -> None:
    fate = _judge(Answered(status, "no such hook"))
    assert fate == Park(f"answered HTTP {status} (no such hook): the receiver refuses it, and would again")


def test_given_up_with_the_last_reason() -> None:
    assert isinstance(_judge(DOWN, 70, 3599), Again)
    assert _judge(DOWN, 70, 3600) == Park(f"given up after 71 tries in 3600 s; the last: {DOWN.why}")
