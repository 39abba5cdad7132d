"""Reports: what an agent sees of its node's health, from the driver's counters to the checks before first work."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from contracts.base import INT64_MAX, Count, Label, Model, Name, Open, Positive, Text, Utc, Uuid, Word

SignedMs = Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)]


class Recovery(StrEnum):
    """What the driver says a card needs (NVML field 230)."""

    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"
    DRAIN = "drain"
    DRAIN_RESET = "drain_reset"


class Verdict(StrEnum):
    """How a check came out. Work is kept away by `failed` alone.

    `skipped`: there is nothing to check on this node. `unknown`: the machine cannot say; shown, and as good as passed.
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class Xid(Model):
    """An error that the driver reported of a card: how often since the machine booted, first and last."""

    code: Count
    count: Positive
    first_at: Utc
    last_at: Utc


class Ecc(Model):
    """Memory errors of a card: `volatile` since the driver was loaded, `aggregate` over its life."""

    volatile_corrected: Count | None = None
    volatile_uncorrected: Count | None = None
    aggregate_corrected: Count | None = None
    aggregate_uncorrected: Count | None = None


class RetiredPages(Model):
    """The older scheme (up to Volta): pages put out of use after single-bit and double-bit errors."""

    single_bit: Count | None = None
    double_bit: Count | None = None
    pending: bool | None = None


class RemappedRows(Model):
    """The newer scheme (from Ampere on): rows replaced by spare ones."""

    corrected: Count | None = None
    uncorrected: Count | None = None
    pending: bool | None = None
    failed: bool | None = None


class CardHealth(Model):
    """One card as its driver sees it. None: not supported, or not to be had at the moment; never zero.

    `fault` is what the driver answers for a card that it cannot read (`gpu_is_lost`, `reset_required`, `no_answer`),
    `lost` that it knows the card no more. `mig`: divided, and then nothing is known of remapped rows. `clock_events`
    are the reasons why its clock is held down just now, `hardware_slowdowns` counts how often the hardware did so in
    the ten minutes before the report. `utilisation_pct` is the mean since the report before.
    """

    index: Count
    uuid: Label
    lost: bool = False
    fault: Word | None = None
    mig: bool | None = None
    xids: Annotated[list[Xid], Field(max_length=256)] = []
    ecc: Ecc | None = None
    retired_pages: RetiredPages | None = None
    remapped_rows: RemappedRows | None = None
    recovery: Open[Recovery] | None = None
    clock_events: Annotated[list[Word], Field(max_length=64)] = []
    hardware_slowdowns: Count | None = None
    link_crc_errors_per_s: Count | None = None
    temperature_c: Count | None = None
    power_mw: Count | None = None
    power_limit_mw: Count | None = None
    utilisation_pct: Annotated[int, Field(ge=0, le=100)] | None = None
    memory_used_bytes: Count | None = None
    energy_mj: Count | None = None


class CheckResult(Model):
    """One check by name: `time_sync`, `container_runtime`, `disk_space`; `detail` says in words what was found."""

    name: Word
    verdict: Open[Verdict]
    detail: Text = ""


class ClockFacts(Model):
    """The node's clock as the machine itself judges it; `offset_ms` is how far it runs ahead of its source."""

    synchronised: bool | None = None
    offset_ms: SignedMs | None = None
    source: Label | None = None


class NodeReported(Model):
    """All of a node's health at one moment, newest only: sent on change and every few minutes.

    `counter` grows with each report of one agent start. `boot_id` is new whenever the machine booted. `window_s` is the
    time that means are taken over. `link_mbps` is what was measured of the way to the centre.
    """

    node: Name
    incarnation: Uuid
    counter: Positive
    boot_id: Label | None = None
    cards: Annotated[list[CardHealth], Field(max_length=1024)] = []
    checks: Annotated[list[CheckResult], Field(max_length=64)] = []
    clock: ClockFacts | None = None
    link_mbps: Count | None = None
    window_s: Count = 0
    reported_at: Utc
