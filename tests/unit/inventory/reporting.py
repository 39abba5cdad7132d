"""A node that is reported on, report after report, in the words of tests."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from contracts.health import (
    CardHealth,
    CheckResult,
    NodeReported,
    RemappedRows,
    RetiredPages,
    Verdict,
    Xid,
)
from services.inventory.core.changes import learnt
from services.inventory.core.health import Memory, examine, is_news
from services.inventory.core.model import Move, Node, Stage
from services.inventory.core.phases import bad_cards, told
from services.inventory.core.rules import HealthRules
from services.inventory.rulebook import read_health
from tests.unit.inventory.builders import T0, at, incarnation, node

RULES = read_health()


def card(index: int = 0, **facts: Any) -> CardHealth:
    return CardHealth(index=index, uuid=f"GPU-{index}", **facts)


def xid(code: int, count: int = 1, when: datetime = T0) -> Xid:
    return Xid(code=code, count=count, first_at=when, last_at=when)


def passed(*names: str) -> list[CheckResult]:
    return [CheckResult(name=name, verdict=Verdict.PASSED) for name in names]


def failed(name: str, detail: str = "") -> CheckResult:
    return CheckResult(name=name, verdict=Verdict.FAILED, detail=detail)


def rows(**facts: Any) -> RemappedRows:
    return RemappedRows(**facts)


def pages(double_bit: int, single_bit: int = 0, *, pending: bool = False) -> RetiredPages:
    return RetiredPages(single_bit=single_bit, double_bit=double_bit, pending=pending)


@dataclass
class Reported:
    """Two cards, ready, unless it is told otherwise; `say` takes a report after `hours`."""

    node: Node = field(default_factory=lambda: replace(node(), cards=2))
    memory: Memory = field(default_factory=Memory)
    rules: HealthRules = RULES
    prechecks: tuple[str, ...] = ()
    counter: int = 0
    hours: float = 0
    boot: str = "boot-1"

    def say(
        self, *cards: CardHealth, checks: list[CheckResult] | None = None, boot: str | None = None, hours: float = 0
    ) -> Move | None:
        """Take one more report; returns the move that follows from it."""
        self.boot = boot or self.boot
        self.counter, self.hours = self.counter + 1, self.hours + hours
        report = self.report(*cards, checks=checks)
        assert is_news(self.node, self.memory, report)
        found = examine(
            self.node, self.memory, report, prechecks=self.prechecks, rules=self.rules, observed_ms=self.counter
        )
        move = learnt(self.node, found.node, reassessed=False)
        self.node, self.memory = found.node, Memory.model_validate_json(found.memory.model_dump_json())
        return move

    def report(self, *cards: CardHealth, checks: list[CheckResult] | None = None) -> NodeReported:
        return NodeReported(
            node="a",
            incarnation=incarnation(1),
            counter=self.counter,
            boot_id=self.boot,
            cards=list(cards) or [card(0), card(1)],
            checks=checks or [],
            reported_at=at(self.hours * 3600),
        )

    @property
    def stands(self) -> tuple[str, list[int]]:
        """The phase that is told, and the cards out of the pool."""
        return told(self.node).value, bad_cards(self.node)

    @property
    def codes(self) -> list[str]:
        return [fault.code for fault in self.node.faults]


def announced(*prechecks: str) -> Reported:
    """A node that has announced itself and owes these checks."""
    return Reported(node=replace(node(), cards=2, stage=Stage.ANNOUNCED), prechecks=prechecks)
