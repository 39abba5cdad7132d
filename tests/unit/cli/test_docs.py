"""The pages that promise to be complete are."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from contracts.base import ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import CheckpointPolicy, JobSpec, Resources
from contracts.registry import SERVICES
from libs.cli import main
from libs.planner.shapes import Card, Cluster, Link, Peaks, Transformer
from services.alerting.core.rules import RULES

ROOT = Path(__file__).parents[3]
PAGES = ("*.md", "docs/**/*.md", "services/*/README.md", "deploy/**/*.md")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def first_column(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def test_every_reason_code_is_explained_once() -> None:
    assert sorted(first_column("reasons.md")) == sorted(code.value for code in ReasonCode)


def test_every_dead_letter_reason_is_in_the_runbook_once() -> None:
    assert sorted(first_column("runbook.md")) == sorted(reason.value for reason in DeadReason)


def test_every_field_of_a_job_file_is_explained() -> None:
    fields = {*JobSpec.model_fields} - {"job_id", "tenant"}
    fields |= {f"resources.{name}" for name in Resources.model_fields}
    fields |= {f"checkpoint.{name}" for name in CheckpointPolicy.model_fields}
    assert fields - set(first_column("cli.md")) == set()


def test_every_field_of_a_planner_file_is_explained() -> None:
    fields = {*Transformer.model_fields}
    for around, model in (("", Cluster), ("card.", Card), ("card.peak_tflops.", Peaks)):
        fields |= {f"{around}{name}" for name in model.model_fields}
    fields |= {f"{link}.{name}" for link in ("card_link", "node_link") for name in Link.model_fields}
    parents = {"card", "card_link", "node_link", "card.peak_tflops"}
    assert set(first_column("planner.md")) == fields - parents


def test_every_command_of_the_planner_page_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = re.findall(r"^    farside (.+)$", (ROOT / "docs" / "planner.md").read_text(), re.MULTILINE)
    assert len(commands) > 1
    for command in commands:
        assert CliRunner().invoke(main.cli, shlex.split(command)).exit_code == 0, command


def test_every_alert_has_its_place_in_the_runbook() -> None:
    page = (ROOT / "docs" / "runbook.md").read_text()
    told = re.findall(r"^\| ([A-Z][A-Za-z]+), level (\d) \|", page, re.MULTILINE)
    assert sorted(told) == sorted((rule.name, str(rule.level)) for rule in RULES)


def test_the_architecture_names_every_service() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"^\| \[([a-z]+)\]\(\.\./services/\1/README\.md\)", page, re.MULTILINE)
    assert sorted(named) == sorted([*SERVICES, "agent"])


def test_every_link_of_the_pages_leads_somewhere() -> None:
    pages = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    assert len(pages) > len(SERVICES)
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not (page.parent / link).exists()] == []
