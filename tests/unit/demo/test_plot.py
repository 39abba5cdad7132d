"""The picture is a PNG of a useful size."""

import math
from pathlib import Path

from deploy.demo.plot import Attempt, Picture, draw

PNG = b"\x89PNG\r\n\x1a\n"


def losses(first: int, last: int) -> dict[int, float]:
    return {step: 2.4 * math.exp(-step / 150) + 0.05 for step in range(first, last)}


def test_draw(tmp_path: Path) -> None:
    picture = Picture(
        attempts=[
            Attempt(1, "central-1", losses(1, 450), [(0.5 * number, 40 * number) for number in range(1, 12)]),
            Attempt(
                2, "central-2", losses(401, 2001), [(16.0 + number, 400 + 160 * number) for number in range(1, 11)]
            ),
        ],
        reference=losses(1, 2001),
        checkpoints=[(2.5, 200), (5.0, 400), (18.0, 600)],
        killed_at_step=449,
        killed_at_s=5.6,
        lost_at_s=13.5,
        resumed_from_step=400,
        resumed_at_s=16.0,
        max_loss_difference=0.0,
        final_accuracy=0.98,
    )
    target = tmp_path / "curve.png"
    draw(picture, target)
    data = target.read_bytes()
    assert data.startswith(PNG)
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    assert width >= 1000
    assert height >= 700
