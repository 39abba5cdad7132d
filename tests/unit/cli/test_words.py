"""Words for people."""

from datetime import UTC, datetime, timedelta

import pytest

from contracts.base import Reason, ReasonCode
from libs.cli import words

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (80 * 2**30, "80.0 GiB"), (2**70, "1048576.0 PiB")],
)
def test_size(value: int, text: str) -> None:
    assert words.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (3 * 86400, "3d")]
)
def test_age(seconds: int, text: str) -> None:
    assert words.age(NOW - timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 roll-ups"), (1, "1 roll-up"), (2, "2 roll-ups")])
def test_count(number: int, text: str) -> None:
    assert words.count(number, "roll-up") == text


def test_a_moment_ends_in_z() -> None:
    assert words.moment(NOW) == "2026-01-01 00:00:00Z"
    assert words.moment(NOW, "milliseconds") == "2026-01-01 00:00:00.000Z"


def test_figures_are_in_the_unit_of_the_resource() -> None:
    reason = Reason(
        code=ReasonCode.QUOTA_EXCEEDED, message="", resource="gpu_ms", used=0, asked=400 * 3_600_000, allowed=3_600_000
    )
    assert words.figures(reason) == "used 0 GPU-hours, asked 400 GPU-hours, allowed 1 GPU-hours"


def test_no_figures_no_words() -> None:
    assert words.figures(Reason(code=ReasonCode.INVALID, message="")) == ""
