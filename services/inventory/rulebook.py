"""The rules about faults, grades and tiers, from the files beside this module or those that an operator names."""

from collections import Counter
from importlib import resources
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from libs.kit.yamlfile import Form, YamlFileError, load
from services.inventory.core.capacity import CapacityRules
from services.inventory.core.grading import GradingRules
from services.inventory.core.rules import HealthRules

HEALTH = "health.yaml"
GRADING = "grading.yaml"
CAPACITY = "capacity.yaml"

HEALTH_FILE = Form(HealthRules, "file of health rules", "limits and xids")
GRADING_FILE = Form(GradingRules, "file of grading rules", "weights, steps, generations and grades")
CAPACITY_FILE = Form(CapacityRules, "file of capacity rules", "tiers")

M = TypeVar("M", bound=BaseModel)


class RulebookError(ValueError):
    """A file of rules cannot be used; the message names file, line, field and value."""


def read_health(path: Path | None = None) -> HealthRules:
    """The rules about faults. Raises RulebookError."""
    here = path or _own(HEALTH)
    rules = _read(here, HEALTH_FILE)
    for code, count in Counter(rule.code for rule in rules.xids).most_common(1):
        if count > 1:
            msg = f"{here}: XID {code} is listed {count} times: leave one"
            raise RulebookError(msg)
    return rules


def read_grading(path: Path | None = None) -> GradingRules:
    """The rules about grades. Raises RulebookError."""
    return _read(path or _own(GRADING), GRADING_FILE)


def read_capacity(path: Path | None = None) -> CapacityRules:
    """The tiers and their headroom. Raises RulebookError."""
    return _read(path or _own(CAPACITY), CAPACITY_FILE)


def _own(name: str) -> Path:
    return Path(str(resources.files("services.inventory") / name))


def _read(path: Path, form: Form[M]) -> M:
    try:
        return load(path, form)
    except YamlFileError as error:
        raise RulebookError(str(error)) from None
