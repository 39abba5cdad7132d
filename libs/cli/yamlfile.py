"""The YAML files of commands: read from disk or given as text, refused with exit status 2 and every mistake."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from libs.cli import words
from libs.cli.errors import FileError
from libs.kit import yamlfile
from libs.kit.yamlfile import Form, YamlFileError

MAX_FILE_BYTES = yamlfile.MAX_FILE_BYTES

M = TypeVar("M", bound=BaseModel)


def load(file: Path, form: Form[M]) -> M:
    """Read a file from disk; raises FileError that names every mistake."""
    return read(str(file), text_of(file, form.what), form)


def text_of(file: Path, what: str) -> str:
    """The text of a file; raises FileError where it cannot be read, is too large or is no text."""
    try:
        return yamlfile.text_of(file, what)
    except YamlFileError as error:
        raise FileError(str(error)) from None


def read(path: str, text: str, form: Form[M], given: Mapping[str, str] | None = None, verdict: str = "") -> M:
    """The model in a text; raises FileError that lists every mistake with `path` and line."""
    found = yamlfile.parse(text, form, given)
    if isinstance(found, BaseModel):
        return found
    lines = [mistake.told(path) for mistake in found]
    raise FileError("\n  ".join([f"{verdict}{words.count(len(found), 'mistake')} in {path}", *lines]))
