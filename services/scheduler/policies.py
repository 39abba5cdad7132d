"""The policy file: windows, pools, cohorts and the knobs of the plan, in one versioned YAML file, all of it optional.

Read at the start and again when it changes; a file that is wrong stops the start, a wrong change later is logged and
the last good state is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from contracts.base import Name
from libs.kit.logs import get_logger
from libs.kit.schema import WORDS, nearest
from libs.kit.yamlfile import Form, YamlFileError, load
from services.scheduler.core.fairness import cohort_cycle
from services.scheduler.core.policy import DEFAULT, MAX_STAGES, OverLimit, Policy
from services.scheduler.core.windows import DAY_MIN, DAYS, Span, Window


def _clock(value: object) -> object:
    """YAML takes 22:00 for a number of base sixty."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value // 60:02}:{value % 60:02}"
    return value


Seconds = Annotated[int, Field(ge=0, le=366 * 24 * 3600)]
Number = Annotated[int, Field(ge=0, le=10_000)]
CardHours = Annotated[float, Field(gt=0, le=10**9, strict=False)]
Clock = Annotated[
    str,
    BeforeValidator(_clock),
    StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$"),
    Field(json_schema_extra={WORDS: "a time of day from 00:00 to 24:00"}),
]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Pattern = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9*?-]{1,63}$"),
    Field(json_schema_extra={WORDS: "a name of nodes, * for any characters and ? for one"}),
]


class PolicyFileError(ValueError):
    """The policy file is wrong; the message names file, line, field, value and what was expected."""


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class _Span(_File):
    days: Annotated[list[Day], Field(min_length=1, max_length=7)] = list(DAYS)
    begin: Annotated[Clock, Field(alias="from")]
    end: Annotated[Clock, Field(alias="to")]


class _Pool(_File):
    nodes: Annotated[list[Pattern], Field(min_length=1, max_length=10_000)]


class _Cohort(_File):
    parent: Name | None = None
    ceiling_cards: Annotated[int, Field(ge=0, le=10**9)] | None = None


class _Plan(_File):
    """The knobs of `core.policy.Policy` that an operator turns."""

    half_life_s: Seconds | None = None
    held_s: Seconds | None = None
    reservations: Number | None = None
    max_reservations: Number | None = None
    repair_s: Seconds | None = None
    preempt: bool | None = None
    grace_s: Seconds | None = None
    consolidate: bool | None = None
    max_moves: Number | None = None
    restart_s: Seconds | None = None
    hold_share: Annotated[float, Field(gt=0, le=1, strict=False)] | None = None
    hold_s: Seconds | None = None
    stages_card_h: Annotated[tuple[CardHours, ...], Field(max_length=MAX_STAGES - 1, strict=False)] | None = None
    turn_s: Seconds | None = None
    patience_s: Seconds | None = None
    over_limit: Annotated[OverLimit, Field(strict=False)] | None = None


class _PolicyFile(_File):
    version: Annotated[int, Field(ge=1)]
    windows: dict[Name, Annotated[list[_Span], Field(min_length=1, max_length=100)]] = {}
    pools: dict[Name, _Pool] = {}
    cohorts: dict[Name, _Cohort] = {}
    plan: _Plan = _Plan()

    @model_validator(mode="after")
    def _is_a_forest(self) -> Self:
        for name, cohort in self.cohorts.items():
            if cohort.parent is not None and cohort.parent not in self.cohorts:
                known = nearest(cohort.parent, self.cohorts) or f"; there are {', '.join(self.cohorts)}"
                msg = f"cohorts.{name}.parent is {cohort.parent!r}: no cohort of that name is in the file{known}"
                raise ValueError(msg)
        cycle = cohort_cycle({name: one.parent for name, one in self.cohorts.items() if one.parent is not None})
        if cycle is not None:
            way = " -> ".join(cycle)
            msg = f"cohorts.{cycle[0]}.parent makes a circle ({way}): one of them must have no parent"
            raise ValueError(msg)
        return self


FORM = Form(_PolicyFile, "policy file", "version")


@dataclass(frozen=True)
class Cohort:
    """Tenants that lend each other, below `parent`; all together hold at most `ceiling_cards`."""

    parent: str | None = None
    ceiling_cards: int | None = None


@dataclass(frozen=True)
class Rules:
    """What the policy file says; of it nothing is needed."""

    version: int = 0
    windows: Mapping[str, Window] = field(default_factory=dict[str, Window])
    pools: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    cohorts: Mapping[str, Cohort] = field(default_factory=dict[str, Cohort])
    policy: Policy = DEFAULT

    def pool_of(self, node: str) -> str | None:
        """The first pool, in the order of the file, that has a pattern for the node."""
        for pool, patterns in self.pools.items():
            if any(fnmatchcase(node, pattern) for pattern in patterns):
                return pool
        return None

    def pools_of(self, nodes: Iterable[str]) -> dict[str, str]:
        """Node to pool, for those that are in one."""
        if not self.pools:
            return {}
        return {node: pool for node in nodes if (pool := self.pool_of(node)) is not None}


def read_rules(path: Path | None) -> Rules:
    """The rules of a file; without one, the defaults. Raises PolicyFileError."""
    if path is None:
        return Rules()
    try:
        parsed = load(path, FORM)
    except YamlFileError as error:
        raise PolicyFileError(str(error)) from None
    knobs = parsed.plan.model_dump(exclude_none=True)
    if "stages_card_h" in knobs:
        knobs["stages_card_h"] = tuple(sorted(knobs["stages_card_h"]))
    return Rules(
        version=parsed.version,
        windows={name: _window(name, spans) for name, spans in parsed.windows.items()},
        pools={name: tuple(pool.nodes) for name, pool in parsed.pools.items()},
        cohorts={name: Cohort(one.parent, one.ceiling_cards) for name, one in parsed.cohorts.items()},
        policy=replace(DEFAULT, **knobs),
    )


def _window(name: str, spans: list[_Span]) -> Window:
    return Window(
        name,
        tuple(
            Span(frozenset(DAYS.index(day) for day in span.days), _minute(span.begin), _minute(span.end))
            for span in spans
        ),
    )


def _minute(clock: str) -> int:
    hours, minutes = clock.split(":")
    return min(DAY_MIN, int(hours) * 60 + int(minutes))


@dataclass
class PolicyBook:
    """The rules as of the last good reading of `path`."""

    path: Path | None = None
    rules: Rules = field(default_factory=Rules)
    _seen: tuple[int, int] | None = None

    @classmethod
    def read(cls, path: Path | None) -> "PolicyBook":
        """Read the file. Raises PolicyFileError."""
        book = cls(path)
        book._seen = book._signature()
        book.rules = read_rules(path)
        book.say_what_is_off()
        return book

    def say_what_is_off(self) -> None:
        """One line for each thing that the rules turn off."""
        for text in self.rules.policy.turned_off():
            get_logger().warning("policy.off", what=text)

    def refresh(self) -> bool:
        """Read again if the file has changed; True when the rules are other than before."""
        seen = self._signature()
        if seen == self._seen:
            return False
        before, self._seen = self.rules, seen
        try:
            self.rules = read_rules(self.path)
        except PolicyFileError as error:
            get_logger().error("policy.refused", error=str(error))
            return False
        get_logger().info("policy.read", version=self.rules.version)
        self.say_what_is_off()
        return self.rules != before

    def _signature(self) -> tuple[int, int] | None:
        try:
            status = None if self.path is None else self.path.stat()
        except OSError:
            return None
        return None if status is None else (status.st_mtime_ns, status.st_size)
