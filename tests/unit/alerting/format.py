"""JSON Schema of what Alertmanager sends to webhooks, version 4, written from its documentation.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from typing import Any

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_TIME = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$"}
_STATUS = {"enum": ["firing", "resolved"]}


def _record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


ALERT = _record(
    status=_STATUS,
    labels={**_TEXTS, "required": ["alertname"]},
    annotations=_TEXTS,
    startsAt=_TIME,
    endsAt=_TIME,
    generatorURL={"type": "string"},
    fingerprint={"type": "string", "pattern": "^[0-9a-f]{16}$"},
)
WEBHOOK = _record(
    version={"const": "4"},
    groupKey={"type": "string", "minLength": 1},
    truncatedAlerts={"type": "integer", "minimum": 0},
    status=_STATUS,
    receiver={"type": "string", "minLength": 1},
    groupLabels=_TEXTS,
    commonLabels=_TEXTS,
    commonAnnotations=_TEXTS,
    externalURL={"type": "string"},
    alerts={"type": "array", "minItems": 1, "items": ALERT},
)
