"""The webhook's payload against the format of Alertmanager."""

import pytest

from services.alerting.core.model import Rule, Signal
from services.alerting.core.payload import payload
from services.alerting.core.rules import CHECKPOINT_FAILED, NODE_LOST
from tests.contracts.judge import faults
from tests.unit.alerting.format import WEBHOOK
from tests.unit.alerting.make import JOB, committed, failed, lost, returned, run


@pytest.mark.parametrize(
    ("rule", "read"), [(NODE_LOST, (lost(3), returned(4))), (CHECKPOINT_FAILED, (failed(5, 10), committed(6, 10)))]
)
def test_both_phases_satisfy_the_format(rule: Rule, read: tuple[Signal, ...]) -> None:
    for effect in run(rule, *read)[1]:
        assert faults(WEBHOOK, payload(effect.alert, "pager", "")) == []


def test_a_firing_alert() -> None:
    alert = run(NODE_LOST, lost(3))[1][0].alert
    labels = {"alertname": "NodeLost", "node": "central-1", "level": "1", "severity": "critical"}
    annotations = {"summary": "node central-1 is lost", "description": "no heartbeat for 270 s"}
    assert payload(alert, "pager", "http://farside.example") == {
        "version": "4",
        "groupKey": '{}:{alertname="NodeLost", node="central-1"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "pager",
        "groupLabels": {"alertname": "NodeLost", "node": "central-1"},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "http://farside.example",
        "alerts": [
            {
                "status": "firing",
                "labels": labels,
                "annotations": annotations,
                "startsAt": "2026-11-30T08:00:00.000000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": f"http://farside.example/alerts/{alert.alert_id}",
                "fingerprint": alert.fingerprint,
            }
        ],
    }


def test_a_resolved_alert_has_its_end() -> None:
    alert = run(CHECKPOINT_FAILED, failed(5, 10), committed(6, 10))[1][-1].alert
    sent = payload(alert, "pager", "")
    [told] = sent["alerts"]
    assert (sent["status"], told["status"]) == ("resolved", "resolved")
    assert (told["startsAt"], told["endsAt"]) == ("2026-11-30T08:00:00.000000Z", "2026-11-30T08:00:01.000000Z")
    assert told["labels"]["severity"] == "info"
    assert told["labels"]["job"] == JOB


def test_what_leaves_the_format_is_seen() -> None:
    sent = payload(run(NODE_LOST, lost(3))[1][0].alert, "pager", "")
    assert faults(WEBHOOK, {**sent, "version": 4})
    assert faults(WEBHOOK, {name: value for name, value in sent.items() if name != "groupKey"})
