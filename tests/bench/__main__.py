"""Run a benchmark: `python -m tests.bench NAME [--quick]`.

Progress goes to standard error, and one JSON object to standard output. The exit status is 2 where an option or a file
is wrong, and the one line that is then printed names it.
"""

import asyncio
import json
import sys
from importlib import import_module
from pathlib import Path

from libs.cli.errors import FileError
from tests.bench.frame import report, say
from tests.options import USAGE, Options

NAMES = sorted(path.parent.name for path in Path(__file__).parent.glob("*/__init__.py"))


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = Options(prog="just bench", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--quick", action="store_true", help="a small load once, to see that it works; no figures")
    known, _ = parser.parse_known_args(arguments)
    module = import_module(f"tests.bench.{known.name}")
    files: tuple[str, ...] = getattr(module, "FILES", ())
    for name in files:
        parser.add_argument(f"--{name}", type=Path, help=f"file of {name}")
    options = parser.parse_args(arguments)
    named = {name: getattr(options, name) for name in files}
    try:
        cases = asyncio.run(module.run(quick=options.quick, **named))
    except FileError as error:
        say(f"just bench {options.name}: {error.format_message()}")
        return USAGE
    sys.stdout.write(json.dumps(report(options.name, cases), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
