"""What git remembers of contracts/: every version of every schema and example that was ever committed.

Promises are kept to the versions that were stable when they were committed; whether one was, it says itself under
`x-farside.status`. The whole history is needed, so a shallow clone is an error.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from contracts.compat import breaks
from tests.contracts.examples import Example, parse

SCHEMAS = "contracts/schemas"
EXAMPLES = "contracts/examples"
GIT_TIMEOUT_S = 60

Schema = dict[str, object]


class HistoryError(Exception):
    """The history cannot be read in full."""


@dataclass(frozen=True)
class Version:
    """One content that a path once had, and the newest commit in which it had it."""

    commit: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} as of {self.commit[:12]}"


def broken_schemas(repo: Path) -> list[str]:
    """One sentence for each promise of a stable schema that the working tree breaks."""
    found: list[str] = []
    for version in _stable(repo, SCHEMAS):
        path = repo / version.path
        if not path.is_file():
            if not _succeeded(path):
                found.append(f"{version}: was stable and is gone, with no newer version beside it")
            continue
        now = _schema(path.read_text(encoding="utf-8"))
        if not _is_stable(now):
            found.append(f"{version}: was stable and is a draft again")
        found += [f"{version}: {problem}" for problem in breaks(_schema(version.text), now)]
    return found


def broken_examples(repo: Path, refusal: Callable[[Example], str | None]) -> list[str]:
    """One sentence for each good example of a once stable message that is refused today; `refusal` tells why."""
    found: list[str] = []
    for version in _stable(repo, EXAMPLES):
        path = Path(version.path)
        example = parse(path.parent.name, path.stem, version.text)
        problem = refusal(example) if example.good else None
        if problem is not None:
            found.append(f"{version}: {problem}")
    return found


def _stable(repo: Path, folder: str) -> list[Version]:
    """Every content below `folder` whose schema was stable in the same commit, each once."""
    found: dict[tuple[str, str], str] = {}
    for commit, tree in _trees(repo):
        for path, blob in tree.items():
            governing = tree.get(_schema_of(path))
            if path.startswith(folder) and governing is not None and _was_stable(repo, governing):
                found.setdefault((path, blob), commit)
    return [Version(commit, path, _blob(repo, blob)) for (path, blob), commit in found.items()]


def _schema_of(path: str) -> str:
    """The schema that governs a schema file (itself) or an example (its message's, or its request's)."""
    if path.startswith(SCHEMAS):
        return path
    id_ = Path(path).parent.name
    suffix = ".request" if id_.startswith(("query.", "call.")) else ""
    return f"{SCHEMAS}/{id_}{suffix}.json"


def _succeeded(path: Path) -> bool:
    """Whether a newer version of the vanished message stands beside where it was."""
    stem, _, version = path.name.removesuffix(".json").removesuffix(".request").removesuffix(".reply").rpartition(".v")
    newer = int(version) + 1
    return any(path.parent.glob(f"{stem}.v{newer}.*json"))


def _trees(repo: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Commits that touched schemas or examples, newest first, each with its files: path to blob."""
    _require_full(repo)
    for commit in _git(repo, "rev-list", "--full-history", "HEAD", "--", SCHEMAS, EXAMPLES).split():
        lines = _git(repo, "ls-tree", "-r", "-z", commit, "--", SCHEMAS, EXAMPLES).split("\0")
        entries = [line.split("\t", 1) for line in lines if line]
        yield commit, {path: facts.split()[2] for facts, path in entries}


def _require_full(repo: Path) -> None:
    if _git(repo, "rev-parse", "--is-shallow-repository").strip() != "false":
        msg = f"{repo} is a shallow clone: stable schemas are compared with all of history; run git fetch --unshallow"
        raise HistoryError(msg)


@cache
def _blob(repo: Path, sha: str) -> str:
    return _git(repo, "cat-file", "blob", sha)


@cache
def _was_stable(repo: Path, sha: str) -> bool:
    """Whether the schema of a blob says that it is stable; commits share most blobs, so each is read once."""
    return _is_stable(_schema(_blob(repo, sha)))


def _schema(text: str) -> Schema:
    return cast("Schema", json.loads(text))


def _is_stable(document: Schema) -> bool:
    return cast("Schema", document.get("x-farside", {})).get("status") == "stable"


def _git(repo: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), *words], check=True, capture_output=True, text=True, timeout=GIT_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        msg = f"git {words[0]} in {repo} failed: {error.stderr.strip()}; the contract gates need the git history"
        raise HistoryError(msg) from error
    return done.stdout
