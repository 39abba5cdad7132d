"""Write contracts/schemas, contracts/asyncapi and docs/flows.md: `python -m contracts.generate [--check]`.

`files()` is the whole content, path by path; `main` compares it with the disk and writes what differs. A file that
nothing in the registry explains is removed. With `--check` nothing is written and any difference is an error.
"""

import argparse
import json
import posixpath
import sys
from collections.abc import Sequence
from pathlib import Path

from contracts import flows, pages, schema

ROOT = Path(__file__).parent
GENERATED = ("schemas", "asyncapi")
FLOWS = "../docs/flows.md"


def files() -> dict[str, str]:
    """Every generated file: its path below contracts/ and its text."""
    found = {f"schemas/{id_}.json": _json(content) for id_, content in schema.all_schemas().items()}
    for service in pages.PARTICIPANTS:
        found[f"asyncapi/{service}.json"] = _json(pages.page(service))
    found[FLOWS] = flows.page()
    return found


def differences(root: Path) -> dict[str, str]:
    """What on disk is not as generated: path and one of `missing`, `stale`, `orphan`."""
    wanted = files()
    present = {path.relative_to(root).as_posix() for part in GENERATED for path in (root / part).glob("**/*.*")}
    present |= {FLOWS} if (root / FLOWS).is_file() else set()
    found = dict.fromkeys(present - wanted.keys(), "orphan")
    for path, text in wanted.items():
        if path not in present:
            found[path] = "missing"
        elif (root / path).read_text(encoding="utf-8") != text:
            found[path] = "stale"
    return dict(sorted(found.items()))


def mend(root: Path) -> dict[str, str]:
    """Make the disk as generated; returns the differences there were."""
    found = differences(root)
    wanted = files()
    for path, state in found.items():
        target = root / path
        if state == "orphan":
            target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(wanted[path], encoding="utf-8")
    return found


def main(argv: Sequence[str]) -> int:
    """Run the command line; 1 when `--check` found a difference."""
    parser = argparse.ArgumentParser(prog="python -m contracts.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something differs")
    check: bool = parser.parse_args(argv).check
    found = differences(ROOT) if check else mend(ROOT)
    for path, state in found.items():
        sys.stdout.write(f"{posixpath.normpath(f'contracts/{path}')}: {state}\n")
    if check and found:
        sys.stdout.write("run `just contracts` and commit what it writes\n")
    return int(check and bool(found))


def _json(content: schema.JsonObject) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
