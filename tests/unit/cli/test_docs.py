"""The pages that promise to be complete are."""

import re
from pathlib import Path

from contracts.base import ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import CheckpointPolicy, JobSpec, Resources

ROOT = Path(__file__).parents[3]


def first_column(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def test_every_reason_code_is_explained_once() -> None:
    assert sorted(first_column("reasons.md")) == sorted(code.value for code in ReasonCode)


def test_every_dead_letter_reason_is_in_the_runbook_once() -> None:
    assert sorted(first_column("runbook.md")) == sorted(reason.value for reason in DeadReason)


def test_every_field_of_a_job_file_is_explained() -> None:
    fields = {*JobSpec.model_fields} - {"job_id", "tenant"}
    fields |= {f"resources.{name}" for name in Resources.model_fields}
    fields |= {f"checkpoint.{name}" for name in CheckpointPolicy.model_fields}
    assert fields - set(first_column("cli.md")) == set()
