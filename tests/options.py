"""Command lines of the tools beside the tests: what is wrong with one is told in one line, with exit status 2."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from typing_extensions import override

USAGE = 2


class Options(argparse.ArgumentParser):
    """As argparse has it, without its page of usage before each refusal."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; `{self.prog} --help` says what there is\n")


def whole(least: int, most: int) -> Callable[[str], int]:
    """What reads a whole number within bounds."""

    def read(said: str) -> int:
        if not (said.isascii() and said.isdecimal() and len(said) <= len(str(most)) and least <= int(said) <= most):
            msg = f"{said!r} is no whole number from {least} to {most}"
            raise argparse.ArgumentTypeError(msg)
        return int(said)

    return read
