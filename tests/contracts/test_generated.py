"""What `python -m contracts.generate` writes is what is committed, and it is what it claims to be."""

import json
from pathlib import Path
from typing import cast

import pytest
from jsonschema import Draft202012Validator

from contracts import generate, pages, registry, schema
from tests.contracts.judge import faults_draft7

CONTRACTS = Path(generate.__file__).parent
ASYNCAPI_SCHEMA = Path(__file__).parent / "vendor" / "asyncapi-3.0.0.json"


def _load(path: Path) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))


def _references(node: object) -> list[str]:
    """Every `$ref` below `node`."""
    if isinstance(node, list):
        return [found for inner in cast("list[object]", node) for found in _references(inner)]
    if not isinstance(node, dict):
        return []
    content = cast("dict[str, object]", node)
    own = content.get("$ref")
    nested = [found for inner in content.values() for found in _references(inner)]
    return [own, *nested] if isinstance(own, str) else nested


def _lookup(document: object, pointer: str) -> object:
    here = document
    for part in pointer.removeprefix("#/").split("/"):
        here = cast("dict[str, object]", here)[part]
    return here


def test_committed_files_are_as_generated() -> None:
    assert generate.differences(CONTRACTS) == {}, "run `just contracts` and commit what it writes"


def test_differences_are_found_and_mended(tmp_path: Path) -> None:
    first, root = next(iter(generate.files())), tmp_path / "contracts"
    generate.mend(root)
    assert generate.differences(root) == {}
    (root / first).write_text("{}", encoding="utf-8")
    (root / "schemas" / "jobs.vanished.v1.json").write_text("{}", encoding="utf-8")
    (root / "asyncapi" / "agent.json").unlink()
    (tmp_path / "docs" / "flows.md").write_text("# Flows", encoding="utf-8")
    found = {
        first: "stale",
        "schemas/jobs.vanished.v1.json": "orphan",
        "asyncapi/agent.json": "missing",
        "../docs/flows.md": "stale",
    }
    assert generate.differences(root) == found
    assert generate.mend(root) == found
    assert generate.differences(root) == {}


def test_check_tells_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path / "contracts")
    assert generate.main(["--check"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert {"contracts/schemas/jobs.submit.v1.json: missing", "docs/flows.md: missing"} <= set(told)
    assert list(tmp_path.iterdir()) == []
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("id_", schema.all_schemas())
def test_schema_is_json_schema_2020_12(id_: str) -> None:
    document = _load(CONTRACTS / "schemas" / f"{id_}.json")
    Draft202012Validator.check_schema(document)
    assert document["$schema"] == schema.DIALECT
    assert cast("dict[str, object]", document["x-farside"])["status"] in {"draft", "stable"}
    for reference in _references(document):
        _lookup(document, reference)


@pytest.mark.parametrize("message", registry.MESSAGES, ids=lambda message: message.id)
def test_headers_are_json_schema_2020_12(message: registry.Message[schema.Model]) -> None:
    Draft202012Validator.check_schema(schema.header_schema(message))


@pytest.mark.parametrize("service", pages.PARTICIPANTS)
def test_page_is_asyncapi_3(service: str) -> None:
    document = _load(CONTRACTS / "asyncapi" / f"{service}.json")
    assert [fault.message for fault in faults_draft7(_load(ASYNCAPI_SCHEMA), document)] == []
    for reference in _references(document):
        if reference.startswith("#/"):
            _lookup(document, reference)
        else:
            assert (CONTRACTS / "asyncapi" / reference).is_file(), reference


def test_the_asyncapi_schema_refuses_what_is_wrong() -> None:
    document = json.loads(json.dumps(pages.page(registry.SCHEDULER)))
    document["channels"]["jobs.submit.v1"]["adress"] = "jobs.v1.submit.acme"
    assert faults_draft7(_load(ASYNCAPI_SCHEMA), document)


def test_pages_together_tell_the_whole_registry() -> None:
    told: set[object] = set()
    for service in pages.PARTICIPANTS:
        channels = cast("dict[str, dict[str, object]]", pages.page(service)["channels"])
        told |= {channel["address"] for channel in channels.values()}
    wanted = {row.template for row in (*registry.MESSAGES, *registry.REQUESTS)}
    assert told - {None} == wanted | {registry.replay_subject("{consumer}")}
