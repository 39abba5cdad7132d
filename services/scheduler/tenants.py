"""Tenants: one versioned YAML file each, read at the start and again when a file changes.

A file that is wrong stops the start; a wrong change later is logged and the last good state is kept.
"""

from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from contracts.base import Label, Name, Priority
from libs.kit.logs import get_logger
from libs.kit.yamldir import Signature, signature
from libs.kit.yamlfile import Form, YamlFileError, load
from services.scheduler.core.quota import Quotas, Tenant
from services.scheduler.core.words import MS_PER_HOUR
from services.scheduler.policies import PolicyBook

MAX_GPU_HOURS = 10**12
MAX_TENANTS = 10_000


class TenantFileError(ValueError):
    """A tenant file is wrong; the message names file, line, field, value and what was expected."""


def _hours(value: object) -> Decimal:
    """An exact number of hours; a YAML float is taken as it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        msg = "expected a number of hours, such as 50 or 0.5"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError into a field error
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        msg = "expected a number of hours, such as 50 or 0.5"
        raise ValueError(msg) from error


GpuHours = Annotated[
    Decimal,
    BeforeValidator(_hours),
    Field(ge=0, le=MAX_GPU_HOURS),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": MAX_GPU_HOURS}),
]


class _QuotasFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    gpu_hours_month: GpuHours
    cards: Annotated[int, Field(ge=0, le=10**9)]
    concurrent_jobs: Annotated[int, Field(ge=0, le=10**9)]
    top_priority: Annotated[Priority, Field(strict=False)]
    guarantee_cards: Annotated[int, Field(ge=0, le=10**9)] = 0
    borrow_cards: Annotated[int, Field(ge=0, le=10**9)] | None = None
    borrow_gpu_hours: GpuHours = Decimal(0)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.guarantee_cards > self.cards:
            msg = f"guarantee_cards is {self.guarantee_cards}, more than cards, {self.cards}: guarantee no more"
            raise ValueError(msg)
        return self

    @property
    def limit(self) -> int:
        """Cards at a time: the guarantee and what may be borrowed, if that is limited."""
        borrowed = self.cards if self.borrow_cards is None else self.guarantee_cards + self.borrow_cards
        return min(self.cards, borrowed)


class _TenantFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tenant: Name
    version: Annotated[int, Field(ge=1)]
    quotas: _QuotasFile
    suspended: bool = False
    weight: Annotated[float, Field(gt=0, le=10**6, strict=False)] = 1.0
    cohort: Name | None = None
    pools: Annotated[list[Name], Field(max_length=1000)] = []
    images: Annotated[list[Label], Field(max_length=10_000)] | None = None


FORM = Form(_TenantFile, "tenant file", "tenant, version and quotas")


def read_tenants(folder: Path) -> dict[str, Tenant]:
    """All tenants of the folder's `*.yaml` files. Raises TenantFileError."""
    if not folder.is_dir():
        msg = f"FARSIDE_TENANTS is {folder}: expected a folder with one YAML file for each tenant"
        raise TenantFileError(msg)
    files = sorted(folder.glob("*.yaml"))
    if len(files) > MAX_TENANTS:
        msg = f"{folder} holds {len(files)} tenant files, the limit is {MAX_TENANTS}"
        raise TenantFileError(msg)
    tenants: dict[str, Tenant] = {}
    for path in files:
        tenant = _read(path)
        if tenant.tenant in tenants:
            msg = f"{path}: field tenant is {tenant.tenant!r}, which another file of the folder states too"
            raise TenantFileError(msg)
        tenants[tenant.tenant] = tenant
    return tenants


def _read(path: Path) -> Tenant:
    try:
        parsed = load(path, FORM)
    except YamlFileError as error:
        raise TenantFileError(str(error)) from None
    quotas = parsed.quotas
    return Tenant(
        tenant=parsed.tenant,
        version=parsed.version,
        quotas=Quotas(
            gpu_ms_month=int(quotas.gpu_hours_month * MS_PER_HOUR),
            cards=quotas.cards,
            concurrent_jobs=quotas.concurrent_jobs,
            top_priority=quotas.top_priority,
            guarantee=quotas.guarantee_cards,
            limit=quotas.limit,
            borrow_gpu_ms=int(quotas.borrow_gpu_hours * MS_PER_HOUR),
        ),
        suspended=parsed.suspended,
        weight=parsed.weight,
        cohort=parsed.cohort,
        pools=tuple(sorted(set(parsed.pools))),
        images=None if parsed.images is None else tuple(parsed.images),
    )


def check(book: "TenantBook", policies: PolicyBook) -> None:
    """Whether what tenant files name is in the policy file. Raises TenantFileError."""
    known = policies.rules.pools
    for name, tenant in book.tenants.items():
        for pool in tenant.pools:
            if pool not in known:
                msg = (
                    f"{book.folder}: tenant {name}: field pools names {pool!r}, which the policy file has not: it has "
                    f"{', '.join(known) or 'none'}"
                )
                raise TenantFileError(msg)


@dataclass
class TenantBook:
    """The tenants as of the last good reading of `folder`."""

    folder: Path
    tenants: dict[str, Tenant] = field(default_factory=dict[str, Tenant])
    _seen: Signature = ()

    @classmethod
    def read(cls, folder: Path) -> "TenantBook":
        """Read all files of `folder`. Raises TenantFileError."""
        book = cls(folder)
        book._seen = signature(folder)
        book.tenants = read_tenants(folder)
        return book

    def refresh(self) -> bool:
        """Read again if a file has changed; True when the tenants are other than before."""
        seen = signature(self.folder)
        if seen == self._seen:
            return False
        before = self.tenants
        self._seen = seen
        try:
            self.tenants = read_tenants(self.folder)
        except TenantFileError as error:
            get_logger().error("tenants.refused", error=str(error))
            return False
        get_logger().info("tenants.read", tenants=sorted(self.tenants))
        return self.tenants != before

    def get(self, tenant: str) -> Tenant | None:
        """One tenant, or None."""
        return self.tenants.get(tenant)
