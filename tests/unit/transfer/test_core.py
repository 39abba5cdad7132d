"""Requests, manifests and totals: what is let through, and the words for what is not."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.jobs import DatasetRef
from contracts.transfers import Manifest, ManifestEntry
from services.transfer.core import (
    Dataset,
    Done,
    Reject,
    Stage,
    State,
    Totals,
    Transfer,
    Wait,
    admit,
    check_manifest,
    check_totals,
    claim,
)

REF = DatasetRef(name="digits", version="v1")
AREAS = ("s3://farside/uploads/acme/", "s3://farside/datasets/acme/")
TRANSFER = Transfer("t1", "acme", REF, "s3://farside/uploads/acme/t1/", "0" * 64, State.STAGING)
STANDING = Dataset("acme", REF, "t0", "0" * 64, 1, 1, datetime(2026, 1, 1, tzinfo=UTC))


def manifest(**sizes: int) -> Manifest:
    entries = [ManifestEntry(path=path, sha256="0" * 64, size_bytes=size) for path, size in sizes.items()]
    return Manifest(dataset=REF, entries=entries, size_bytes=sum(sizes.values()))


@pytest.mark.parametrize(
    "source",
    [
        "s3://farside/uploads/other/t1/",
        "s3://farside/uploads/acme",
        "s3://elsewhere/uploads/acme/t1/",
        "s3://farside/uploads/acme/../other/",
        "s3://farside/uploads/acme/x/..",
    ],
)
def test_a_source_outside_the_tenants_areas_is_refused(source: str) -> None:
    refused = admit(replace(TRANSFER, source=source), AREAS)
    assert refused is not None
    assert source in refused.message


def test_a_source_inside_is_let_through() -> None:
    assert admit(TRANSFER, AREAS) is None


def test_a_version_is_claimed_by_one_transfer() -> None:
    assert claim(TRANSFER, None) == Stage()
    assert claim(TRANSFER, replace(STANDING, transfer_id="t1", completed_at=None)) == Stage()
    assert claim(TRANSFER, replace(STANDING, completed_at=None)) == Wait()
    assert claim(TRANSFER, STANDING) == Done(STANDING)
    other = claim(TRANSFER, replace(STANDING, manifest_sha256="1" * 64))
    assert isinstance(other, Reject)
    assert "a version never changes" in other.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"a": 1}, "1 of 2 files are missing at the source, b"),
        ({}, "2 of 2 files are missing at the source, a, b"),
        ({"a": 1, "b": 2, "c": 3}, "the source has 1 files that the manifest does not name, c"),
        ({"a": 1, "b": 3}, "b has 3 bytes at the source, the manifest says 2"),
    ],
)
def test_tc8_what_differs_at_the_source_is_named(source: dict[str, int], words: str) -> None:
    refused = check_manifest(manifest(a=1, b=2), TRANSFER, source)
    assert refused is not None
    assert words in refused.message


def test_a_manifest_that_contradicts_itself_is_refused() -> None:
    good = manifest(a=1, b=2)
    twice = good.model_copy(update={"entries": [*good.entries, good.entries[0]]})
    wrong = good.model_copy(update={"size_bytes": 4})
    other = good.model_copy(update={"dataset": DatasetRef(name="digits", version="v2")})
    messages: list[str] = []
    for bad in (twice, wrong, other):
        refused = check_manifest(bad, TRANSFER, {"a": 1, "b": 2})
        assert refused is not None
        messages.append(refused.message)
    assert "only 2 different paths" in messages[0]
    assert "says 4 bytes, its files add up to 3" in messages[1]
    assert "is of digits:v2, the request is for digits:v1" in messages[2]


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=8))
def test_the_source_that_the_manifest_describes_is_let_through(sizes: dict[str, int]) -> None:
    assert check_manifest(manifest(**sizes), TRANSFER, sizes) is None
    total = sum(sizes.values())
    assert check_totals(Totals(len(sizes), total, len(sizes)), manifest(**sizes)) is None
    for short in (Totals(len(sizes) - 1, total, len(sizes)), Totals(len(sizes), total, len(sizes) - 1)):
        assert check_totals(short, manifest(**sizes)) is not None
