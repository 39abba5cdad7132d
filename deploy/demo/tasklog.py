"""Read what train.py prints: `step 412 loss 0.123`."""

import re

_LOSS = re.compile(rb"^step (\d+) loss (\S+)$", re.MULTILINE)


def losses(log: bytes) -> dict[int, float]:
    """Loss by step; a line that was cut off at the end does not count."""
    whole = log[: log.rfind(b"\n") + 1]
    return {int(step): float(loss) for step, loss in _LOSS.findall(whole)}
