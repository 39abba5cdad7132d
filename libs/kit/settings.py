"""What every service is told by its environment (`FARSIDE_*`); services extend it with their own fields."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "FARSIDE_"
JS_API = "$JS.API"
WORDS = {
    "greater_than": "it must be above {gt}",
    "greater_than_equal": "it must be {ge} or more",
    "less_than": "it must be below {lt}",
    "less_than_equal": "it must be {le} or less",
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_parsing": "it must be a number",
    "bool_parsing": "it must be true or false",
    "extra_forbidden": "there is no such setting",
}


def faults(error: ValidationError) -> str:
    """What is wrong with settings: each variable by its name, in words. Values are left out: some are secrets."""
    return "; ".join(
        _fault([str(part) for part in one["loc"]], one["type"], _words(one["type"], one["msg"], one.get("ctx", {})))
        for one in error.errors()
    )


def _words(kind: str, words: str, bounds: Mapping[str, object]) -> str:
    known = WORDS.get(kind)
    return words.removeprefix("Value error, ") if known is None else known.format_map(bounds)


def _fault(path: list[str], kind: str, words: str) -> str:
    if not path:
        return words
    name = ".".join([PREFIX + path[0].upper().removeprefix(PREFIX), *path[1:]])
    return f"{name} is not set" if kind == "missing" and len(path) == 1 else f"{name}: {words}"


class ServiceSettings(BaseSettings):
    """Where the bus and the object store are, and how this process reports itself.

    `js_api` is what the subjects of the JetStream API begin with in the account of this process (`hub.api` on nodes);
    `nats_creds` is a creds file that may be replaced while the process runs. `trace_dir` is the folder that spans are
    written to, `metrics_port` where Prometheus finds the metrics (`/metrics` of `metrics_host`); without them there
    are none.
    """

    model_config = SettingsConfigDict(env_prefix="FARSIDE_", frozen=True, extra="forbid")

    nats_url: str = "nats://127.0.0.1:4222"
    nats_creds: Path | None = None
    js_api: str = JS_API
    s3_endpoint: str = "http://127.0.0.1:8333"
    s3_access_key: str = ""
    s3_secret_key: SecretStr = SecretStr("")
    s3_bucket: str = "farside"
    log_level: str = "info"
    trace_dir: Path | None = None
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    metrics_host: str = "127.0.0.1"
    version: str = "0.1.0"


class LedgerSettings(ServiceSettings):
    """Besides, for a service that keeps its ledger in PostgreSQL: where that is; `FARSIDE_PG_DSN` is required."""

    pg_dsn: str | None = None

    @model_validator(mode="after")
    def _has_ledger(self) -> Self:
        if not self.pg_dsn:
            msg = "FARSIDE_PG_DSN is not set: name the service's PostgreSQL, as in postgresql://user@host/database"
            raise ValueError(msg)
        return self

    @property
    def dsn(self) -> str:
        """Where the ledger is."""
        assert self.pg_dsn is not None
        return self.pg_dsn


class LeaseTimings(BaseSettings):
    """The times of the lease, shared by agent, inventory and scheduler, in seconds. They only make sense together."""

    model_config = SettingsConfigDict(env_prefix="FARSIDE_", frozen=True, extra="forbid")

    heartbeat_s: float = Field(default=5.0, gt=0)
    suspect_s: float = Field(default=15.0, gt=0)
    lease_s: float = Field(default=240.0, gt=0)
    lost_s: float = Field(default=270.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lost_s <= self.lease_s:
            msg = f"FARSIDE_LOST_S is {self.lost_s}: it must be above FARSIDE_LEASE_S ({self.lease_s}), else a node is "
            raise ValueError(msg + "given up while its attempts still hold their lease")
        if self.suspect_s <= self.heartbeat_s:
            msg = f"FARSIDE_SUSPECT_S is {self.suspect_s}: it must be above FARSIDE_HEARTBEAT_S ({self.heartbeat_s}), "
            raise ValueError(msg + "else every node is suspect between two heartbeats")
        return self
