"""jsonschema behind one typed function: its stubs leave part of the validators' types open."""

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import ValidationError


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterable[ValidationError]: ...


def faults(document: Mapping[str, object], instance: object) -> list[ValidationError]:
    """What the 2020-12 schema `document` finds wrong with `instance`."""
    return list(cast("_Validator", Draft202012Validator(document)).iter_errors(instance))


def faults_draft7(document: Mapping[str, object], instance: object) -> list[ValidationError]:
    """The same for a schema of draft 7."""
    return list(cast("_Validator", Draft7Validator(document)).iter_errors(instance))
