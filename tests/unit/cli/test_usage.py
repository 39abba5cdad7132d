"""`farside usage`: what is said without a stack, and its rows."""

from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from contracts.usage import AttemptUsage, RowFault, Unbilled
from libs.cli import main
from libs.cli.errors import USAGE
from libs.cli.usage import HEADERS, row


@pytest.mark.parametrize("words", [["--samples"], ["digits-train", "--samples", "--refused"]])
def test_samples_are_those_of_one_job(words: list[str]) -> None:
    result = CliRunner().invoke(main.cli, ["usage", *words])
    assert result.exit_code == USAGE
    assert "--samples shows the samples of one JOB: name it, without --refused" in result.output


def test_a_row_tells_how_far_the_ledger_and_the_closings_are() -> None:
    one = AttemptUsage(
        job_id="01a22b7c-5c80-7d0c-8a51-6b1f0d0a4e21",
        job_name="digits-train",
        tenant="acme",
        attempt=1,
        windows=2,
        samples=4,
        gpu_ms=3_600_000,
        gpu_memory_mib_ms=0,
        closed_samples=3,
        unbilled=[Unbilled(fault=RowFault.OVERLAP, samples=1, gpu_ms=1)],
        held_gpu_ms=1_800_000,
        holding=True,
        held_as_of=datetime(2026, 11, 30, 8, 12, 3, tzinfo=UTC),
        difference_gpu_ms=1_800_000,
    )
    shown = dict(zip(HEADERS, row(one), strict=True))
    assert shown["MEASURED GPU-HOURS"] == "1.000000"
    assert shown["HELD GPU-HOURS"] == "0.500000 as of 08:12:03Z"
    assert shown["CLOSED SAMPLES"] == "3/4"
    assert shown["UNBILLED SAMPLES"] == "1 overlap"
    over = one.model_copy(update={"holding": False, "held_as_of": None})
    assert dict(zip(HEADERS, row(over), strict=True))["HELD GPU-HOURS"] == "0.500000"
