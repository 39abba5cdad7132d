"""`farside alerts`: its rows, what it says of notifications, and how an id is found."""

import re
from datetime import UTC, datetime, timedelta

import click
import pytest
from click.testing import CliRunner

from contracts.alerts import Alert, AlertPhase, AlertRecord, Notification
from libs.cli.alerts import alerts, find, row, told
from libs.cli.errors import USAGE, CliError

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
ALERT = Alert(
    alert_id="01a22b7c-5c80-7d0c-8a51-6b1f0d0a4e21",
    name="NodeLost",
    fingerprint="0123456789abcdef",
    level=1,
    labels={"alertname": "NodeLost", "node": "central-1"},
    annotations={"summary": "node central-1 is lost"},
    state=AlertPhase.FIRING,
    seen=2,
    fired_at=NOW - timedelta(minutes=5),
)


def _about(receiver: str, about: AlertPhase, state: str, tries: int = 1, message: str = "") -> Notification:
    return Notification(receiver=receiver, about=about, state=state, tries=tries, message=message, at=NOW)


def test_a_row_names_level_labels_age_and_who_was_told() -> None:
    record = AlertRecord(alert=ALERT, notifications=[_about("pager", AlertPhase.FIRING, "delivered")])
    told_ = "pager delivered"
    assert row(record, NOW) == ("01a22b7c-5c80-7d0c", "1", "NodeLost", "node=central-1", "5m", "", "firing", "2", told_)


def test_an_alert_that_is_over_shows_when_it_fired_and_ended() -> None:
    over = ALERT.model_copy(update={"state": AlertPhase.RESOLVED, "resolved_at": NOW - timedelta(seconds=7)})
    cells = row(AlertRecord(alert=over), NOW)
    assert cells[4:] == ("5m", "7s", "resolved", "2", "")


def test_of_each_receiver_the_first_state_that_is_not_delivered_is_told() -> None:
    found = [
        _about("chat", AlertPhase.FIRING, "parked", 1, "answered HTTP 404: the receiver refuses it, and would again"),
        _about("chat", AlertPhase.RESOLVED, "delivered"),
        _about("pager", AlertPhase.FIRING, "waiting", 3, "127.0.0.1:9 cannot be reached"),
        _about("pager", AlertPhase.RESOLVED, "waiting", 0),
        _about("mail", AlertPhase.FIRING, "waiting", 0),
        _about("desk", AlertPhase.FIRING, "delivered"),
        _about("desk", AlertPhase.RESOLVED, "delivered"),
    ]
    assert told(found) == "chat parked, pager waiting, mail waiting, desk delivered"


def test_an_id_is_found_by_its_beginning() -> None:
    one = AlertRecord(alert=ALERT)
    other = AlertRecord(alert=ALERT.model_copy(update={"alert_id": "01a22b7c-5c80-7eee-8a51-6b1f0d0a4e21"}))
    assert find([other, one], "01A22B7C-5c80-7d") == one
    with pytest.raises(CliError, match="2 alerts have ids that begin with 01a22b7c: give more of it"):
        find([other, one], "01a22b7c")
    with pytest.raises(CliError, match="no alert has an id that begins with ff: `farside alerts` lists them"):
        find([other, one], "ff")


def test_options_of_the_list_before_a_command_are_refused() -> None:
    result = CliRunner().invoke(alerts, ["--json", "show", "01a2"])
    assert result.exit_code == USAGE
    assert "put them after it" in re.sub(r"\s+", " ", result.output)


def test_a_reason_is_needed() -> None:
    result = CliRunner().invoke(alerts, ["resolve", "01a2", ""])
    assert result.exit_code == USAGE
    assert "why the alert is dealt with" in result.output


def test_the_bare_command_lists_and_has_a_manual() -> None:
    assert isinstance(alerts, click.Group)
    result = CliRunner().invoke(alerts, ["--help"])
    assert "  farside alerts --state firing --json" in result.output
    assert "show" in result.output
