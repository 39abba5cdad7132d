"""The policy file: what it may say, and what is said of a wrong one."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from services.scheduler.core.policy import DEFAULT, OverLimit
from services.scheduler.policies import PolicyBook, PolicyFileError, Rules, read_rules
from services.scheduler.tenants import TenantBook, TenantFileError, check

PAGE = Path(__file__).parents[3] / "docs" / "tenants.md"
GOOD = """\
version: 2
windows:
  nights:
    - {days: [mon, fri], from: 22:00, to: 06:00}
    - {from: "12:30", to: "24:00"}
pools:
  vision: {nodes: [central-*, spare-1]}
  rest: {nodes: ["*"]}
cohorts:
  all: {ceiling_cards: 64}
  research: {parent: all}
plan:
  half_life_s: 86400
  hold_share: 1
  over_limit: drain
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    return path


def test_without_a_file_everything_has_a_default() -> None:
    assert read_rules(None) == Rules()
    assert Rules().policy == DEFAULT


def test_the_whole_file(tmp_path: Path) -> None:
    rules = read_rules(write(tmp_path, GOOD))
    assert rules.version == 2
    first, second = rules.windows["nights"].spans
    assert (sorted(first.days), first.begin, first.end) == ([0, 4], 22 * 60, 6 * 60)
    assert (len(second.days), second.begin, second.end) == (7, 12 * 60 + 30, 24 * 60)
    assert rules.pools_of(["central-1", "remote-1", "spare-1"]) == {
        "central-1": "vision",
        "spare-1": "vision",
        "remote-1": "rest",
    }
    assert (rules.cohorts["research"].parent, rules.cohorts["all"].ceiling_cards) == ("all", 64)
    assert rules.policy == replace(DEFAULT, half_life_s=86400, hold_share=1.0, over_limit=OverLimit.DRAIN)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("version: 2", "version: 0", "line 1: version is 0; expected a whole number from 1"),
        ("[mon, fri]", "[mon, holiday]", 'line 4: windows.nights[0].days[1] is "holiday"; expected one of mon, tue'),
        ("from: 22:00", "from: 25:00", 'line 4: windows.nights[0].from is "25:00"; expected a time of day'),
        ("to: 06:00", "to: dawn", 'line 4: windows.nights[0].to is "dawn"; expected a time of day'),
        ("[central-*, spare-1]", "[]", "line 7: pools.vision.nodes is []; expected a list of 1 to 10000 items"),
        (
            "parent: all",
            "parent: none",
            "line 11: cohorts.research.parent is 'none': no cohort of that name is in the file; there are all",
        ),
        (
            "{ceiling_cards: 64}",
            "{parent: research}",
            "line 10: cohorts.all.parent makes a circle (all -> research -> all)",
        ),
        (
            "half_life_s: 86400",
            "half_life_s: -1",
            "line 13: plan.half_life_s is -1; expected a whole number from 0 to 31622400",
        ),
        (
            "half_life_s: 86400",
            "half_lives: 1",
            "line 13: plan.half_lives is no field of a policy file, did you mean 'half_life_s'?",
        ),
        ("hold_share: 1", "stages_card_h: [0]", "line 14: plan.stages_card_h[0] is 0; expected a number above 0"),
        (
            "over_limit: drain",
            "over_limit: ignore",
            'line 15: plan.over_limit is "ignore"; expected one of preempt, drain',
        ),
        ("windows:", "windows: [", "line 4: the file is not YAML: "),
    ],
)
def test_a_wrong_file_is_refused_by_file_field_and_value(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(PolicyFileError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}, {said}")


def test_the_page_shows_files_that_are_taken_and_the_defaults_of_the_knobs(tmp_path: Path) -> None:
    tenant, policy = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "vision.yaml").write_text(tenant)
    rules = read_rules(write(tmp_path.parent, policy))
    check(TenantBook.read(tmp_path), PolicyBook(rules=rules))
    assert rules.policy == DEFAULT


def test_the_page_of_mistakes_shows_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acme.yaml").write_text(
        "tenant: acme\nversion: 3\nquotas:\n  gpu_hours_month: 1\n  cards: 8\n  concurrent_jobs: 4\n"
        "  top_priority: normal\n  guarantee_card: 2\n"
    )
    Path("policy.yaml").write_text("version: 1\ncohorts:\n  all: {parent: research}\n  research: {parent: all}\n")
    with pytest.raises(TenantFileError) as tenant:
        TenantBook.read(Path())
    with pytest.raises(PolicyFileError) as policy:
        read_rules(Path("policy.yaml"))
    shown = PAGE.with_name("bad-input.md").read_text(encoding="utf-8")
    assert f"    {tenant.value}\n    {policy.value}\n" in shown


def test_a_wrong_change_keeps_what_was_and_a_good_one_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    book = PolicyBook.read(path)
    assert not book.refresh()
    write(tmp_path, GOOD.replace("version: 2", "version: many"))
    os.utime(path, ns=(1, 1))
    assert not book.refresh()
    assert book.rules.version == 2
    write(tmp_path, GOOD.replace("version: 2", "version: 3"))
    os.utime(path, ns=(2, 2))
    assert book.refresh()
    assert book.rules.version == 3


def test_a_pool_that_a_tenant_names_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(
        "tenant: acme\nversion: 1\npools: [vision, lost]\nquotas: {gpu_hours_month: 1, cards: 1, concurrent_jobs: 1, "
        "top_priority: normal}\n"
    )
    book = TenantBook.read(tmp_path)
    with pytest.raises(TenantFileError, match=r"tenant acme: field pools names 'lost'.*it has vision, rest"):
        check(book, PolicyBook.read(write(tmp_path.parent, GOOD)))
