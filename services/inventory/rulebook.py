"""The rules about faults, grades and tiers, from the files beside this module or those that an operator names."""

from collections import Counter
from importlib import resources
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from libs.kit.yamldir import explain
from services.inventory.core.capacity import CapacityRules
from services.inventory.core.grading import GradingRules
from services.inventory.core.rules import HealthRules

HEALTH = "health.yaml"
GRADING = "grading.yaml"
CAPACITY = "capacity.yaml"

M = TypeVar("M", bound=BaseModel)


class RulebookError(ValueError):
    """A file of rules cannot be used; the message names the file, the field and the value."""


def read_health(path: Path | None = None) -> HealthRules:
    """The rules about faults. Raises RulebookError."""
    here = path or _own(HEALTH)
    rules = _read(here, HealthRules)
    for code, count in Counter(rule.code for rule in rules.xids).most_common(1):
        if count > 1:
            msg = f"{here}: XID {code} is listed {count} times: leave one"
            raise RulebookError(msg)
    return rules


def read_grading(path: Path | None = None) -> GradingRules:
    """The rules about grades. Raises RulebookError."""
    return _read(path or _own(GRADING), GradingRules)


def read_capacity(path: Path | None = None) -> CapacityRules:
    """The tiers and their headroom. Raises RulebookError."""
    return _read(path or _own(CAPACITY), CapacityRules)


def _own(name: str) -> Path:
    return Path(str(resources.files("services.inventory") / name))


def _read(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        msg = f"{path} cannot be read: {error}"
        raise RulebookError(msg) from None
    except ValidationError as error:
        raise RulebookError(explain(path, error)) from None
