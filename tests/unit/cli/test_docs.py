"""The pages that promise to be complete are."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from contracts.base import ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import CheckpointPolicy, JobKind, JobSpec, Resources
from contracts.registry import SERVICES
from libs.cli import main
from libs.planner.shapes import Card, Cluster, Link, Peaks, Transformer
from services.alerting.core.rules import RULES
from services.scheduler.core.demands import TIERS

ROOT = Path(__file__).parents[3]
TENANTS = ROOT / "docs" / "tenants.md"
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


def test_the_tiers_and_the_class_of_each_kind_are_told() -> None:
    page = (ROOT / "docs" / "scheduling.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([a-z, ]+) \| (\w+) \|$", page, re.MULTILINE)
    told = {kind: (tiers, top) for kinds, tiers, top in rows for kind in re.findall(r"\w+", kinds)}
    assert told == {kind.value: (", ".join(TIERS[kind]), kind_class(kind)) for kind in JobKind}


def kind_class(kind: JobKind) -> str:
    return JobSpec.model_construct(kind=kind, priority=None).effective_priority.value


def test_the_check_of_tenant_files_works_as_told_and_asks_no_database() -> None:
    [told] = re.findall(r"^(FARSIDE_PG_DSN=.+) python -m (\S+) --check$", TENANTS.read_text(), re.MULTILINE)
    env = dict(word.split("=") for word in told[0].split())
    assert {*env} == {"FARSIDE_PG_DSN", "FARSIDE_TENANTS", "FARSIDE_POLICY"}
    env |= {"FARSIDE_TENANTS": str(ROOT / "deploy/local/tenants"), "FARSIDE_POLICY": "missing.yaml"}
    command = [sys.executable, "-m", told[1], "--check"]
    wrong = subprocess.run(command, check=False, capture_output=True, env=env, cwd=ROOT)
    assert (wrong.returncode, b"missing.yaml cannot be read" in wrong.stdout + wrong.stderr) == (2, True)
    del env["FARSIDE_POLICY"]
    assert subprocess.run(command, check=False, capture_output=True, env=env, cwd=ROOT).returncode == 0


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
