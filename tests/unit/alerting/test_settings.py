"""Settings: webhooks as JSON in the environment, and the words for those that are wrong."""

import json

import pytest
from pydantic import ValidationError

from services.alerting.settings import AlertingSettings

GOOD = {"name": "pager", "url": "http://127.0.0.1:9099/hook?key=s3cret"}


def _read(monkeypatch: pytest.MonkeyPatch, webhooks: object) -> AlertingSettings:
    monkeypatch.setenv("FARSIDE_PG_DSN", "postgresql://x@y/z")
    monkeypatch.setenv("FARSIDE_ALERT_WEBHOOKS", json.dumps(webhooks))
    return AlertingSettings()


def test_webhooks_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _read(monkeypatch, [GOOD, {"name": "chat", "url": "https://chat.example/x"}])
    assert [hook.name for hook in settings.alert_webhooks] == ["pager", "chat"]
    assert settings.alert_webhooks[0].url == GOOD["url"]
    assert _read(monkeypatch, []).alert_webhooks == ()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1/s3cret", "scheme 'ftp': use http or https"),
        ("127.0.0.1:9099/s3cret", "use http or https"),
        ("http:///s3cret", "names no host"),
        ("http://127.0.0.1:port/s3cret", "cannot be read"),
        ("http://[::1/s3cret", "cannot be read"),
        ("http://me:s3cret@127.0.0.1/", "holds a user or a password"),
        ("http://127.0.0.1/s3cret\r\nX: y", "percent-encoded"),
    ],
)
def test_a_bad_url_is_refused_with_its_name_and_its_secret_is_kept(
    monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        _read(monkeypatch, [GOOD, {"name": "broken", "url": url}])
    assert "webhook broken of FARSIDE_ALERT_WEBHOOKS" in str(refused.value)
    assert words in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_two_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="names pager more than once"):
        _read(monkeypatch, [GOOD, GOOD])


def test_what_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARSIDE_PG_DSN", "postgresql://x@y/z")
    monkeypatch.setenv("FARSIDE_ALERT_WEBHOOKS", "http://127.0.0.1")
    with pytest.raises(ValueError, match="alert_webhooks"):
        AlertingSettings()


def test_a_missing_database_is_named() -> None:
    with pytest.raises(ValidationError, match="FARSIDE_PG_DSN is not set"):
        AlertingSettings()
