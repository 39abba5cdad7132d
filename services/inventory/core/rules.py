"""What is done about what agents report: the table of XIDs and the limits of a card, as `health.yaml` has them."""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from services.inventory.core.model import Remedy

Limit = Annotated[int, Field(ge=1)]


class Action(StrEnum):
    """What an XID leads to."""

    IGNORE = "ignore"
    WATCH = "watch"
    CARD = "card"
    NODE = "node"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class XidRule(_Row):
    """One XID: what the sources say of it, and what follows here."""

    code: Annotated[int, Field(ge=1)]
    catalogue: str
    dcgm: str = ""
    farside: Action
    remedy: Remedy = Remedy.NONE
    words: str = ""


class CardLimits(_Row):
    """What a card may have before it is taken out of the pool; see the comments in `health.yaml`."""

    retired_pages: Limit
    retired_double_bit: Limit
    retired_in_a_week: Limit
    remapped_uncorrected: Limit
    link_crc_errors_per_s: Limit
    hardware_slowdowns: Limit
    reboots: Limit


class HealthRules(_Row):
    """The whole file."""

    limits: CardLimits
    xids: tuple[XidRule, ...]

    def of(self, code: int) -> XidRule:
        """The rule for an XID; one that is not listed is watched."""
        found = next((rule for rule in self.xids if rule.code == code), None)
        return found or XidRule(code=code, catalogue="not listed", farside=Action.WATCH)
