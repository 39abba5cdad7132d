"""What an agent is told by its environment (`FARSIDE_*`)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import SettingsConfigDict

from contracts.base import Label, Name, Positive, Tier
from contracts.nodes import Link, MonthlyCost
from libs.kit.settings import LeaseTimings, ServiceSettings

MIB = 1024 * 1024
GRACE_SHARE = 0.25
LEAD_SHARE = 0.05
LEAD_MOST_S = 1.0
HOUR_S = 3600


class DeclaredCard(BaseModel):
    """A card that no driver shows, as the node's configuration declares it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Label
    memory_bytes: Positive


class AgentSettings(ServiceSettings, LeaseTimings):
    """The node, its folder, and the bounds of everything the agent keeps or repeats.

    `runtime_dir` holds the sockets (a Unix socket's path has some 100 bytes at most); without it a folder under
    XDG_RUNTIME_DIR or the system's temporary folder is used.
    """

    model_config = SettingsConfigDict(env_prefix="FARSIDE_", frozen=True, extra="forbid")

    node: Name
    tier: Tier = Tier.CENTRAL
    zone: Name = "local"
    address: str = "127.0.0.1"
    state_dir: Path
    runtime_dir: Path | None = None
    declared_cards: tuple[DeclaredCard, ...] = ()
    nvml: bool = True
    link_mbps: int | None = None
    generation: Label | None = None
    rack: Name | None = None
    card_link: Link | None = None
    node_link: Link | None = None
    cost: MonthlyCost | None = None
    power_limit_w: int | None = None
    heat_limit_w: int | None = None
    executor: Literal["process"] = "process"
    end_attempts_on_stop: bool = False

    progress_s: Annotated[float, Field(gt=0)] = 1.0
    log_s: Annotated[float, Field(gt=0)] = 1.0
    log_head_bytes: Annotated[int, Field(ge=1)] = 64 * MIB
    log_tail_bytes: Annotated[int, Field(ge=1)] = MIB
    log_segment_bytes: Annotated[int, Field(ge=1)] = MIB // 4
    drain_s: Annotated[float, Field(gt=0)] = 120.0
    prepare_s: Annotated[float, Field(gt=0)] = 24 * 3600.0
    pending_saves: Annotated[int, Field(ge=1)] = 2
    keep_attempts: Annotated[int, Field(ge=0)] = 20
    keep_attempts_s: Annotated[float, Field(gt=0)] = 24 * 3600.0
    cache_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * MIB
    artefact_bytes: Annotated[int, Field(ge=1)] = 2 * 1024 * MIB
    unpacked_bytes: Annotated[int, Field(ge=1)] = 8 * 1024 * MIB
    unpacked_files: Annotated[int, Field(ge=1)] = 200_000
    health_s: Annotated[float, Field(gt=0)] = 10.0
    report_s: Annotated[float, Field(gt=0)] = 300.0
    driver_s: Annotated[float, Field(gt=0)] = 30.0
    disk_free_bytes: Annotated[int, Field(ge=0)] = 1024 * MIB
    time_sync_required: bool = True
    usage_period_s: Annotated[int, Field(ge=1, le=HOUR_S)] = 60

    @field_validator("usage_period_s")
    @classmethod
    def _divides_the_hour(cls, value: int) -> int:
        """A window must lie in one hour, since roll-ups are made by the hour."""
        if HOUR_S % value:
            msg = f"FARSIDE_USAGE_PERIOD_S is {value}: use a divisor of {HOUR_S}, such as 60"
            raise ValueError(msg)
        return value

    def lease_grace_s(self, stop_grace_s: float) -> float:
        """Grace of a stop that happens inside the lease: what the job asks, a quarter of the lease at most."""
        return min(stop_grace_s, self.lease_s * GRACE_SHARE)

    @property
    def lease_lead_s(self) -> float:
        """How long before the deadline the group is killed."""
        return min(LEAD_MOST_S, self.lease_s * LEAD_SHARE)
