"""Names of nodes and tenants given as options."""

import re
from collections.abc import Iterable

from contracts.base import NAME_PATTERN
from libs.cli.errors import FileError


def check(option: str, given: Iterable[str]) -> None:
    """Raises FileError for the first name that cannot stand in a subject."""
    for name in given:
        if not re.fullmatch(NAME_PATTERN, name):
            msg = f"{option} is {name!r}: expected 1 to 63 characters out of a-z, 0-9 and -"
            raise FileError(msg)
