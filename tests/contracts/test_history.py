"""Promises made by stable messages are kept: against this repository's history, and against made-up ones."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from pydantic import ValidationError

from contracts import registry
from contracts.base import Model
from libs.bus import codec
from libs.bus.events import Invalid
from tests.contracts import history
from tests.contracts.examples import ROOT, Example
from tests.contracts.judge import faults

MESSAGES = {message.id: message for message in registry.MESSAGES}
REQUESTS = {request.id: request for request in registry.REQUESTS}


def _refusal(example: Example) -> str | None:
    """Why today's reader refuses an example, or None."""
    if example.id in MESSAGES:
        now = datetime(2026, 11, 30, tzinfo=UTC)
        read = codec.decode(MESSAGES[example.id], example.subject, example.headers, example.data, received_at=now)
        return read.detail if isinstance(read, Invalid) else None
    if example.id in REQUESTS:
        return _refused(REQUESTS[example.id].model, example.data) or _refused(REQUESTS[example.id].reply, example.reply)
    return None


def _refused(model: type[Model], data: bytes | None) -> str | None:
    try:
        if data is not None:
            model.model_validate_json(data, strict=True)
    except ValidationError as error:
        return str(error)
    return None


def test_a_reply_that_was_given_once_must_still_be_read() -> None:
    reply = b'{"jobs": [{"job_id": 7}], "cursor": null}'
    refused = _refusal(
        Example("query.scheduler.jobs.v1", "good-old", "query.v1.scheduler.jobs.acme", b"{}", reply=reply)
    )
    assert refused is not None
    assert "jobs.0.job_id" in refused
    assert _refusal(Example("query.scheduler.jobs.v1", "good-old", "query.v1.scheduler.jobs.acme", b"{}")) is None


def test_stable_schemas_of_this_repository_are_kept() -> None:
    assert history.broken_schemas(ROOT) == []


def test_shipped_examples_of_this_repository_are_still_taken() -> None:
    assert history.broken_examples(ROOT, _refusal) == []


class Repo:
    """A repository of one message, committed step by step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> None:
        settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(self.root), *settings, *words], check=True, capture_output=True)

    def write(self, path: str, content: object) -> None:
        target = self.root / "contracts" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content), encoding="utf-8")

    def schema(self, status: str, *, required: list[str], version: int = 1, **properties: object) -> None:
        content: dict[str, object] = {
            "x-farside": {"type": f"io.farside.jobs.probe.v{version}", "status": status},
            "type": "object",
            "properties": properties,
            "required": required,
        }
        self.write(f"schemas/jobs.probe.v{version}.json", content)

    def example(self, name: str, body: object) -> None:
        content: dict[str, object] = {"subject": "jobs.v1.probe.acme", "body": body}
        self.write(f"examples/jobs.probe.v1/{name}.json", content)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "step")

    def refusal(self, example: Example) -> str | None:
        """Why the schema in the working tree refuses an example."""
        path = self.root / "contracts" / "schemas" / f"{example.id}.json"
        document = cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))
        return next((fault.message for fault in faults(document, json.loads(example.data))), None)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A message that was a draft with another shape, then became stable with one example."""
    made = Repo(tmp_path / "repo")
    made.schema("draft", required=["size"], size={"type": "string"})
    made.example("good-one", {"size": "small"})
    made.commit()
    made.schema("stable", required=["size"], size={"type": "integer"})
    made.example("good-one", {"size": 1})
    made.example("bad-one", {"size": "small"})
    made.commit()
    return made


def test_nothing_changed(repo: Repo) -> None:
    assert history.broken_schemas(repo.root) == []
    assert history.broken_examples(repo.root, repo.refusal) == []


def test_optional_field_added(repo: Repo) -> None:
    repo.schema("stable", required=["size"], size={"type": "integer"}, colour={"type": "string"})
    assert history.broken_schemas(repo.root) == []
    assert history.broken_examples(repo.root, repo.refusal) == []


BREAKS: dict[str, tuple[Callable[[Repo], None], str]] = {
    "type changed": (
        lambda repo: repo.schema("stable", required=["size"], size={"type": "number"}),
        "/size/type: was 'integer', is 'number'",
    ),
    "required field added": (
        lambda repo: repo.schema("stable", required=["size", "new"], size={"type": "integer"}, new={}),
        "/required",
    ),
    "a draft again": (
        lambda repo: repo.schema("draft", required=["size"], size={"type": "integer"}),
        "was stable and is a draft again",
    ),
    "gone": (
        lambda repo: (repo.root / history.SCHEMAS / "jobs.probe.v1.json").unlink(),
        "was stable and is gone",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_promise_is_found_before_and_after_the_commit(repo: Repo, name: str) -> None:
    change, words = BREAKS[name]
    change(repo)
    assert words in str(history.broken_schemas(repo.root))
    repo.commit()
    assert words in str(history.broken_schemas(repo.root))


def test_break_hidden_by_a_later_commit_is_still_found(repo: Repo) -> None:
    repo.schema("stable", required=["size"], size={"type": "integer"}, colour={"type": "string"})
    repo.commit()
    repo.schema("stable", required=["size"], size={"type": "integer"}, colour={"type": "integer"})
    repo.commit()
    assert "/colour/type: was 'string', is 'integer'" in str(history.broken_schemas(repo.root))


def test_version_committed_on_a_branch_counts(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "-b", "side")
    repo.schema("stable", required=["size"], size={"type": "integer"}, side={"type": "string"})
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.commit()
    repo.git("merge", "--quiet", "--no-ff", "--strategy=ours", "--message", "merge", "side")
    assert "/side: field removed" in str(history.broken_schemas(repo.root))


def test_replaced_by_a_newer_version(repo: Repo) -> None:
    repo.schema("stable", version=2, required=["size"], size={"type": "string"})
    (repo.root / history.SCHEMAS / "jobs.probe.v1.json").unlink()
    repo.commit()
    assert history.broken_schemas(repo.root) == []


def test_earlier_example_that_is_refused_today(repo: Repo) -> None:
    repo.example("good-one", {"size": 11})
    repo.schema("stable", required=["size"], size={"type": "integer", "minimum": 10})
    repo.commit()
    found = history.broken_examples(repo.root, repo.refusal)
    assert len(found) == 1
    assert "good-one.json" in found[0]
    assert "1 is less than the minimum of 10" in found[0]


def test_removed_example_still_counts(repo: Repo) -> None:
    (repo.root / history.EXAMPLES / "jobs.probe.v1" / "good-one.json").unlink()
    repo.schema("stable", required=["size"], size={"type": "integer", "minimum": 10})
    repo.commit()
    assert "good-one.json" in str(history.broken_examples(repo.root, repo.refusal))


def test_shallow_clone_is_an_error(repo: Repo, tmp_path: Path) -> None:
    repo.git("clone", "--quiet", "--depth", "1", repo.root.as_uri(), str(tmp_path / "shallow"))
    with pytest.raises(history.HistoryError, match="git fetch --unshallow"):
        history.broken_schemas(tmp_path / "shallow")


def test_folder_without_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(history.HistoryError, match="need the git history"):
        history.broken_schemas(tmp_path)
