"""Put a layout into a job file: its field `parallel`, in one line, and nothing else of the file changes."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import yaml

from contracts.jobs import JobSpec, Parallel
from libs.cli import jobfile, output, yamlfile
from libs.cli.errors import FileError
from libs.planner.layout import Layout

FIELD = "parallel"
NOBODY = "00000000-0000-7000-8000-000000000000"


def write(file: Path, layout: Layout) -> None:
    """Write the layout into a job file that is without mistakes; raises FileError, the file untouched, else."""
    text = yamlfile.text_of(file, jobfile.JOB_FILE.what)
    _read(file, text)
    changed = with_parallel(str(file), text, layout)
    spec = _read(file, changed)
    aside = file.with_name(f".{file.name}.new")
    aside.write_text(changed)
    aside.replace(file)
    output.note(f"\n{file}: {line_of(layout)}")
    if spec.total_cards != layout.cards:
        asks = f"{spec.members} x {spec.resources.cards} cards"
        output.note(f"{file} asks {asks}, the plan is for {layout.cards}: set members and resources.cards to match")


def _read(file: Path, text: str) -> JobSpec:
    given = {"job_id": NOBODY, "tenant": "nobody"}
    return yamlfile.read(str(file), text, jobfile.JOB_FILE, given, verdict="nothing was written: ")


def line_of(layout: Layout) -> str:
    """The field as it stands in a job file."""
    sizes = ", ".join(f"{name}: {value}" for name, value in asdict(layout).items() if name in Parallel.model_fields)
    return f"{FIELD}: {{{sizes}}}"


def with_parallel(name: str, text: str, layout: Layout) -> str:
    """The job file with its field `parallel` set; comments and the order of fields stay."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode), "a job file without mistakes is a mapping"
    if root.flow_style:
        msg = f"{name} is one mapping in braces: write its fields one a line, so that {FIELD} can be put between them"
        raise FileError(msg)
    lines = text.splitlines(keepends=True)
    for key, value in root.value:
        if key.value == FIELD:
            first, last = key.start_mark.line, max(_lines(value))
            return "".join([*lines[:first], line_of(layout) + "\n", *lines[last + 1 :]])
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{line_of(layout)}\n"


def _lines(node: yaml.Node) -> Iterator[int]:
    """The lines that a value truly stands on; a block's own end lies behind the comments that follow it."""
    yield node.start_mark.line
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        for key, value in node.value:
            yield from (*_lines(key), *_lines(value))
    else:
        yield node.end_mark.line
