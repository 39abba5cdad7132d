"""Settings refuse times that would break the promise of the lease."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.inventory import rulebook
from services.inventory.settings import InventorySettings

DSN = "postgresql://inventory@/farside"


def test_defaults_are_those_of_the_architecture() -> None:
    timings = InventorySettings(pg_dsn=DSN).timings
    assert (timings.suspect_ms, timings.lease_ms, timings.lost_ms, timings.gap_ms) == (15_000, 240_000, 270_000, 5_000)
    assert InventorySettings(pg_dsn=DSN).tick_every_s == 1.0


def test_ticks_follow_the_heartbeats_when_times_are_scaled_down() -> None:
    settings = InventorySettings(pg_dsn=DSN, heartbeat_s=0.5, suspect_s=1, lease_s=4, lost_s=5)
    assert settings.tick_every_s == 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pg_dsn": None}, "FARSIDE_PG_DSN is not set"),
        ({"lost_s": 240.0}, "must be above FARSIDE_LEASE_S"),
        ({"suspect_s": 5.0}, "must be above FARSIDE_HEARTBEAT_S"),
        ({"suspect_s": 300.0}, "must be below FARSIDE_LOST_S"),
        ({"tick_s": 6.0}, "must not be above FARSIDE_HEARTBEAT_S"),
        ({"breaker_share": 1.5}, "less than or equal to 1"),
    ],
)
def test_inconsistent_times_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        InventorySettings.model_validate({"pg_dsn": DSN} | changes)


def test_a_file_of_rules_that_cannot_be_used_is_refused_by_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "health.yaml"
    shipped = (Path(rulebook.__file__).parent / rulebook.HEALTH).read_text()
    for text, words in (
        (
            shipped.replace("reboots: 2", "reboots: 0"),
            r"health.yaml, line \d+: limits.reboots is 0; expected a whole number from 1",
        ),
        (shipped.replace("code: 11,", "code: 8,"), r"health.yaml: XID 8 is listed 2 times: leave one"),
        (
            shipped.replace("farside: node", "farside: explode"),
            r'line \d+: xids\[\d+\].farside is "explode"; expected one of ignore, watch, card, node',
        ),
        ("limits: [", "health.yaml, line 1: the file is not YAML"),
    ):
        file.write_text(text)
        with pytest.raises(ValidationError, match=words):
            InventorySettings(pg_dsn=DSN, health_file=file)
    with pytest.raises(ValidationError, match=r"none\.yaml cannot be read"):
        InventorySettings(pg_dsn=DSN, capacity_file=tmp_path / "none.yaml")


def test_tables_of_grades_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "grading.yaml"
    shipped = (Path(rulebook.__file__).parent / rulebook.GRADING).read_text()
    for text, words in (
        (shipped.replace("t4: turing", "t4: turin"), r"line \d+: models\.t4 is 'turin': it must be one of generations"),
        (
            shipped.replace("[E, 0]", "[E, 400], [F, 0]"),
            r"line \d+: grades begins with \[750, .*write the highest first",
        ),
        (
            shipped.replace("    - [2, 0.5]\n", "    - [9, 0.5]\n"),
            r"line \d+: steps\.usable_cards begins with \[8, 4, 9, ",
        ),
        (
            shipped.replace("grades: [[", "grades: [] #"),
            r"line \d+: grades is \[\]; expected a list of at least 1 item",
        ),
    ):
        assert text != shipped
        file.write_text(text)
        with pytest.raises(ValidationError, match=words):
            InventorySettings(pg_dsn=DSN, grading_file=file)
