"""Settings and the command line of both services that keep objects."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from services.checkpoint.settings import CheckpointSettings
from services.transfer.settings import TransferSettings


@pytest.mark.parametrize("settings", [CheckpointSettings, TransferSettings])
def test_a_missing_database_is_named(settings: type[CheckpointSettings | TransferSettings]) -> None:
    with pytest.raises(ValidationError, match="FARSIDE_PG_DSN is not set"):
        settings()


@pytest.mark.parametrize("service", ["checkpoint", "transfer"])
def test_check_says_what_is_wrong_and_starts_nothing(service: str) -> None:
    command = [sys.executable, "-m", f"services.{service}", "--check"]
    right = subprocess.run(command, check=False, capture_output=True, env={"FARSIDE_PG_DSN": "postgresql://x@y/z"})
    assert right.returncode == 0
    wrong = subprocess.run(command, check=False, capture_output=True, env={})
    assert wrong.returncode == 2
    assert b"FARSIDE_PG_DSN is not set" in wrong.stderr
