"""Pictures that a command draws with `--plot FILE`: refused before anything is done where they could not be written."""

import os
from pathlib import Path
from typing import Any

import click

from libs.cli.errors import FileError

DOTS_PER_INCH = 130
# What needs LaTeX, which is not there as a rule, and bare dots that nothing shows.
NOT_DRAWN = {"pgf", "raw", "rgba"}


def checked(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    """The callback of a `--plot` option. Raises FileError for a type that is not drawn and a folder that is none."""
    if file is None:
        return None
    known = kinds()
    if file.suffix.removeprefix(".").lower() not in known:
        msg = f"--plot {file} is no picture that can be drawn: end its name with one of .{', .'.join(known)}"
        raise FileError(msg)
    folder = file.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        msg = f"--plot {file}: {folder} is no folder that can be written to: make it, or name another"
        raise FileError(msg)
    return file


def kinds() -> list[str]:
    """The types of files that matplotlib draws, by the ends of their names."""
    try:
        from matplotlib import backend_bases
    except ModuleNotFoundError:
        msg = "--plot needs matplotlib, which is not installed: pip install 'farside[local]'"
        raise FileError(msg) from None
    return sorted(set(backend_bases.FigureCanvasBase.get_supported_filetypes()) - NOT_DRAWN)


def save(figure: Any, file: Path) -> None:
    """Write a figure of matplotlib. Raises FileError where the file cannot be written after all."""
    try:
        figure.savefig(file, dpi=DOTS_PER_INCH)
    except OSError as error:
        msg = f"--plot {file} could not be written ({error.strerror or error}): name another file"
        raise FileError(msg) from None
