"""What the alerting service is told by its environment."""

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import SettingsConfigDict

from contracts.base import NAME_PATTERN
from libs.kit.settings import LedgerSettings
from services.alerting.core.delivery import Patience

SCHEMES = ("http", "https")
WEBHOOKS_LIMIT = 16
DAY_S = 24 * 3600.0


class Webhook(BaseModel):
    """A receiver of notifications. The URL may hold a secret: it is in no log line and no error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    url: Annotated[str, Field(max_length=2048)]

    @model_validator(mode="after")
    def _usable(self) -> Self:
        fault = _fault(self.url)
        if fault is not None:
            msg = f"webhook {self.name} of FARSIDE_ALERT_WEBHOOKS: its url {fault}, as in http://127.0.0.1:9099/hook"
            raise ValueError(msg)
        return self


def _fault(url: str) -> str | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return "has blanks or other characters that no URL has: write them percent-encoded"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where the port is no port
    except ValueError as error:
        return f"cannot be read ({error}): name scheme, host and path"
    if parts.scheme not in SCHEMES:
        return f"has the scheme {parts.scheme!r}: use http or https"
    if not parts.hostname:
        return "names no host: put one after the scheme"
    if parts.username is not None or parts.password is not None:
        return "holds a user or a password, which would not be sent: leave them out"
    return None


class AlertingSettings(LedgerSettings):
    """`FARSIDE_PG_DSN` is required. Times are in seconds.

    `alert_webhooks`: a JSON list of {"name": ..., "url": ...}. A notification that its receiver does not take is tried
    again after `alerting_retry_first_s`, later every `alerting_retry_cap_s`, and parked after `alerting_give_up_s`;
    one try lasts `alerting_timeout_s` at most. `alerting_external_url` is where people find this installation's alerts.
    """

    model_config = SettingsConfigDict(hide_input_in_errors=True)

    alert_webhooks: Annotated[tuple[Webhook, ...], Field(max_length=WEBHOOKS_LIMIT)] = ()
    alerting_poll_s: float = Field(default=1.0, gt=0)
    alerting_retry_first_s: float = Field(default=1.0, gt=0)
    alerting_retry_cap_s: float = Field(default=300.0, gt=0)
    alerting_give_up_s: float = Field(default=DAY_S, gt=0)
    alerting_timeout_s: float = Field(default=10.0, gt=0)
    alerting_external_url: str = ""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [webhook.name for webhook in self.alert_webhooks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"FARSIDE_ALERT_WEBHOOKS names {', '.join(twice)} more than once: give each webhook a name of its own"
            raise ValueError(msg)
        return self

    @property
    def patience(self) -> Patience:
        """How long a receiver is waited for."""
        return Patience(self.alerting_retry_first_s, self.alerting_retry_cap_s, self.alerting_give_up_s)
