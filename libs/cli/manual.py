"""Commands whose help is a manual: a paragraph with indented lines is printed as it is written, the rest is wrapped."""

import inspect
from typing import Any

import click
from typing_extensions import override

VERBATIM = "\b\n"
WHOLE = 10_000


def keep_layout(text: str) -> str:
    """Mark each paragraph that has indented lines, so that click leaves its lines alone."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(VERBATIM + part if _is_laid_out(part) else part for part in paragraphs)


def _is_laid_out(paragraph: str) -> bool:
    return any(line.startswith("  ") for line in paragraph.splitlines())


class Manual(click.Command):
    """A command with such a help."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = keep_layout(inspect.cleandoc(self.help or ""))

    @override
    def get_short_help_str(self, limit: int = WHOLE) -> str:
        """The whole first sentence: a list of commands wraps its lines, so nothing need be cut off."""
        return super().get_short_help_str(WHOLE)


class ManualGroup(click.Group):
    """A group of them."""

    command_class = Manual
