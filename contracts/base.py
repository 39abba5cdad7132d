"""Field types shared by all messages: names, ids, times, digests and the base model.

A model ignores fields it does not know (an older reader must survive a newer writer) and is frozen once built.
Quantities are integers whose unit is the last part of the name; times are UTC in RFC 3339. Words come from a closed
set (a `StrEnum`: any other word is refused) or from an open one (`Open`: the set grows, so any word is taken).
"""

from datetime import UTC, datetime
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, TypeAlias, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.config import JsonDict
from pydantic_core import CoreSchema

MAX_BODY_BYTES = 1024 * 1024
MAX_REPLY_BYTES = 512 * 1024
MAX_ATTRIBUTE_CHARS = 1024
PAGE_LIMIT = 100
NAME_PATTERN = r"^[a-z0-9-]{1,63}$"
WORD_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
UUID_PATTERN = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
RFC3339_PATTERN = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$"

INT64_MAX = 2**63 - 1


def _to_utc(value: datetime) -> datetime:
    """Return `value` in UTC; a time without a zone has no meaning on the bus, so it raises ValueError."""
    if value.tzinfo is None:
        msg = f"time {value.isoformat()} has no zone: write it as UTC, for example {value.isoformat()}Z"
        raise ValueError(msg)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        msg = f"time {value.isoformat()} lies outside the years 1 to 9999 in UTC"
        raise ValueError(msg) from None


def _rfc3339(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Uuid = Annotated[str, StringConstraints(pattern=UUID_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, StringConstraints(pattern=WORD_PATTERN)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Text = Annotated[str, StringConstraints(max_length=4096)]
Uri = Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9.-]{3,63}/.+$", max_length=2048)]
Utc = Annotated[
    datetime,
    AfterValidator(_to_utc),
    PlainSerializer(_rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": RFC3339_PATTERN}),
]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Field(ge=1, le=INT64_MAX)]
Seconds = Annotated[int, Field(ge=1, le=366 * 24 * 3600)]
PageLimit = Annotated[int, Field(ge=1, le=PAGE_LIMIT)]
Cursor = Annotated[str, Field(max_length=256)]


class Model(BaseModel):
    """Base of every message body: frozen, tolerant of unknown fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_timedelta="float")


class _Growing:
    """Takes any word, and gives the member of the vocabulary where it has one.

    In the schema the words of today are an annotation, `x-farside.words`: a list that may only grow.
    """

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        vocabulary: type[StrEnum] = next(part for part in get_args(source) if part is not str)
        known = {word.value: word for word in vocabulary}

        def read(said: str) -> str:
            return known.get(said, said)

        words: JsonDict = {"words": list(known)}
        about = Field(description=cleandoc(vocabulary.__doc__ or ""), json_schema_extra={"x-farside": words})
        return handler.generate_schema(Annotated[Word, AfterValidator(read), about])


W = TypeVar("W", bound=StrEnum)

Open: TypeAlias = Annotated[W | str, _Growing()]
"""A word of a vocabulary that grows: its member, or, from a newer writer, a plain `str` that is shown as it is."""


class Tier(StrEnum):
    """Where a node stands in the fused fleet (FEATURES row I5)."""

    CENTRAL = "central"
    REMOTE = "remote"
    SHARED = "shared"


class Priority(StrEnum):
    """Priority classes, highest first (FEATURES row S6)."""

    ONLINE = "online"
    NORMAL = "normal"
    BATCH = "batch"


class ReasonCode(StrEnum):
    """Why a job was refused, waits or ended; docs/reasons.md explains each."""

    INVALID = "invalid"
    UNKNOWN_TENANT = "unknown_tenant"
    TENANT_MISMATCH = "tenant_mismatch"
    JOB_ID_REUSED = "job_id_reused"
    NO_SUCH_NODE_TYPE = "no_such_node_type"
    QUOTA_EXCEEDED = "quota_exceeded"
    PRIORITY_NOT_ALLOWED = "priority_not_allowed"
    CHECKPOINT_REQUIRED = "checkpoint_required"
    IMAGE_NOT_ALLOWED = "image_not_allowed"
    EXCEEDS_LARGEST_QUOTA = "exceeds_largest_quota"
    TENANT_SUSPENDED = "tenant_suspended"
    BEYOND_LIMIT = "beyond_limit"
    UNKNOWN_WINDOW = "unknown_window"
    ON_HOLD = "on_hold"
    WAITING_FOR_QUOTA = "waiting_for_quota"
    WAITING_FOR_DATASET = "waiting_for_dataset"
    WAITING_FOR_CARDS = "waiting_for_cards"
    WAITING_FOR_NODES = "waiting_for_nodes"
    FRAGMENTED = "fragmented"
    TOPOLOGY = "topology"
    RESERVED = "reserved"
    WAITING_FOR_WINDOW = "waiting_for_window"
    WAITING_FOR_PREEMPTION = "waiting_for_preemption"
    BREAKER_OPEN = "breaker_open"
    CANCELLED = "cancelled"
    NODE_LOST = "node_lost"
    NODE_SILENT = "node_silent"
    MEMBER_FAILED = "member_failed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    MAX_RUNTIME = "max_runtime"
    COMPLETED = "completed"
    NOT_CLAIMED = "not_claimed"
    PREEMPTED = "preempted"
    NODE_DRAINING = "node_draining"


class Reason(Model):
    """One reason, told in words and in numbers.

    `used`, `asked` and `allowed` are in the unit named by `resource` (for example `gpu_ms` or `cards`).
    """

    code: Open[ReasonCode]
    message: Text
    resource: Label | None = None
    used: Count | None = None
    asked: Count | None = None
    allowed: Count | None = None
