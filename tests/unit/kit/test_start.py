"""Settings at fault end a process with one readable line, not with a stack trace."""

import json

import pytest

from libs.kit.settings import LedgerSettings, ServiceSettings
from libs.kit.start import BAD_SETTINGS, read_settings


def test_good_settings_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSIDE_NATS_URL", "nats://127.0.0.1:4999")
    assert read_settings("probe", ServiceSettings).nats_url == "nats://127.0.0.1:4999"


def test_unknown_level_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FARSIDE_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit) as ended:
        read_settings("probe", ServiceSettings)
    assert ended.value.code == BAD_SETTINGS
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["service"]) == ("settings.invalid", "probe")
    assert "FARSIDE_LOG_LEVEL is 'loud'" in line["detail"]


def test_each_field_at_fault_is_named_and_no_value_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FARSIDE_METRICS_PORT", "99999")
    monkeypatch.setenv("FARSIDE_S3_SECRET_KEY", "hush")
    with pytest.raises(SystemExit):
        read_settings("probe", ServiceSettings)
    assert json.loads(capsys.readouterr().err)["detail"] == "FARSIDE_METRICS_PORT: it must be 65535 or less"
    monkeypatch.setenv("FARSIDE_METRICS_PORT", "many")
    with pytest.raises(SystemExit):
        read_settings("probe", ServiceSettings)
    assert json.loads(capsys.readouterr().err)["detail"] == "FARSIDE_METRICS_PORT: it must be a whole number"
    monkeypatch.delenv("FARSIDE_METRICS_PORT")
    with pytest.raises(SystemExit):
        read_settings("probe", LedgerSettings)
    assert json.loads(capsys.readouterr().err)["detail"] == (
        "FARSIDE_PG_DSN is not set: name the service's PostgreSQL, as in postgresql://user@host/database"
    )
