"""Tenant files: what is taken, and what is said of a wrong one."""

import os
from pathlib import Path

import pytest

from contracts.base import Priority
from services.scheduler.core.words import MS_PER_HOUR
from services.scheduler.tenants import TenantBook, TenantFileError, read_tenants

REPOSITORY = Path(__file__).parents[3]
GOOD = """\
tenant: acme
version: 3
quotas:
  gpu_hours_month: 0.5
  cards: 8
  concurrent_jobs: 4
  top_priority: normal
"""


def test_hours_are_exact(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(GOOD)
    acme = read_tenants(tmp_path)["acme"]
    assert acme.version == 3
    assert acme.quotas.gpu_ms_month == MS_PER_HOUR // 2
    assert acme.quotas.top_priority is Priority.NORMAL


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ("", 8),
        ("  guarantee_cards: 2\n", 8),
        ("  guarantee_cards: 2\n  borrow_cards: 3\n", 5),
        ("  borrow_cards: 9\n", 8),
    ],
)
def test_what_may_be_borrowed_bounds_what_is_held(tmp_path: Path, more: str, limit: int) -> None:
    (tmp_path / "acme.yaml").write_text(GOOD + more)
    quotas = read_tenants(tmp_path)["acme"].quotas
    assert (quotas.cards, quotas.most_cards) == (8, limit)


def test_what_a_file_may_say_beside_its_quotas(tmp_path: Path) -> None:
    more = "suspended: true\nweight: 2\ncohort: research\npools: [b, a]\nimages: [registry.example/*]\n"
    (tmp_path / "acme.yaml").write_text(GOOD + more)
    acme = read_tenants(tmp_path)["acme"]
    assert (acme.suspended, acme.weight, acme.cohort, acme.pools) == (True, 2.0, "research", ("a", "b"))
    assert acme.images == ("registry.example/*",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cards: 8", "cards: -1", "line 5: quotas.cards is -1; expected a whole number from 0 to 1000000000"),
        ("cards: 8", "cards: many", 'line 5: quotas.cards is "many"; expected a whole number'),
        ("cards: 8", "card: 8", "line 5: quotas.card is no field of a tenant file, did you mean 'cards'?"),
        ("  cards: 8\n", "", "line 3: quotas.cards is missing; expected a whole number"),
        ("0.5", "-1", "line 4: quotas.gpu_hours_month is -1; expected a number from 0 to 1000000000000"),
        ("0.5", "lots", 'line 4: quotas.gpu_hours_month is "lots"; expected a number of hours, such as 50 or 0.5'),
        ("0.5", "true", "line 4: quotas.gpu_hours_month is true; expected a number of hours"),
        ("normal", "urgent", 'line 7: quotas.top_priority is "urgent"; expected one of online, normal, batch'),
        ("tenant: acme", "tenant: ACME", 'line 1: tenant is "ACME"; expected a name of 1 to 63 characters'),
        ("version: 3", "version: 0", "line 2: version is 0; expected a whole number from 1"),
        ("tenant: acme", "tenant: [", "line 3: the file is not YAML: "),
        ("cards: 8", "cards: 8\n  guarantee_cards: 9", "line 6: quotas.guarantee_cards is 9, more than cards, 8"),
        ("cards: 8", "cards: 8\n  borrow_cards: -1", "line 6: quotas.borrow_cards is -1; expected"),
        ("version: 3", "version: 3\nweight: 0", "line 3: weight is 0; expected a number above 0, up to 1000000"),
        ("version: 3", "version: 3\ncohort: Research", 'line 3: cohort is "Research"; expected a name'),
        ("version: 3", "version: 3\nsuspended: later", 'line 3: suspended is "later"; expected true or false'),
        ("version: 3", "version: 3\nimages: [1]", "line 3: images[0] is 1; expected a text of 1 to 256 characters"),
    ],
)
def test_a_wrong_file_is_refused_by_file_field_and_value(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "acme.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(TenantFileError) as caught:
        read_tenants(tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_two_files_of_one_tenant_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(TenantFileError, match="another file"):
        read_tenants(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TenantFileError, match="nowhere"):
        read_tenants(tmp_path / "nowhere")


def test_a_changed_file_is_read_again_and_a_broken_one_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "acme.yaml"
    path.write_text(GOOD)
    book = TenantBook.read(tmp_path)
    assert not book.refresh()
    path.write_text(GOOD.replace("cards: 8", "cards: 16"))
    assert book.refresh()
    path.write_text("tenant: [")
    os.utime(path, ns=(1, 1))
    assert not book.refresh()
    acme = book.get("acme")
    assert acme is not None
    assert acme.quotas.cards == 16


def test_the_local_stack_ships_a_generous_and_a_small_tenant() -> None:
    shipped = read_tenants(REPOSITORY / "deploy" / "local" / "tenants")
    assert shipped["acme"].quotas.gpu_ms_month > shipped["beta"].quotas.gpu_ms_month
