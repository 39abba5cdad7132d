"""Philly's traces: rows become jobs, and a broken row is named by file, line and field."""

import json
from pathlib import Path

import pytest

from deploy.replay.philly import RATES_FILE, SECOND_US, read, steps_per_second
from libs.cli.errors import FileError
from tests.unit.replay.traces import folder, row


def test_rows_become_jobs_of_their_tenant_in_order_of_arrival(tmp_path: Path) -> None:
    there = {"b": [row(at="2.5", steps="50")], "a": [row(at="9.0", cards="4"), row(at="1.0")]}
    trace = read(folder(tmp_path, there))
    assert trace.tenants == ("a", "b")
    assert [(job.job_id, job.tenant, job.arrival_us) for job in trace.jobs] == [
        ("a-000002", 0, SECOND_US),
        ("b-000001", 1, 2_500_000),
        ("a-000001", 0, 9 * SECOND_US),
    ]
    assert [job.duration_us for job in trace.jobs] == [10 * SECOND_US, 5 * SECOND_US, 3_125_000]


def test_a_measured_rate_goes_before_the_scaled_one() -> None:
    rates = {("LM", 1): 10.0, ("LM", 2): 15.0}
    assert steps_per_second(rates, "LM", 2) == 15.0
    assert steps_per_second(rates, "LM", 4) == 32.0
    assert steps_per_second(rates, "LM", 1) == 10.0
    assert steps_per_second(rates, "GAN", 1) is None


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("LM\tpython3\t-n\t1\t100\t0.0", "6 fields separated by tabs where 7 belong"),
        ("", "1 fields"),
        (row(cards="0"), "scale factor '0'"),
        (row(cards="65"), "scale factor '65'"),
        (row(cards="1.5"), "scale factor '1.5'"),
        (row(cards="many"), "scale factor 'many' is no number"),
        (row(steps="0"), "total steps '0'"),
        (row(steps="-3"), "total steps '-3'"),
        (row(steps="1.5"), "total steps '1.5'"),
        (row(steps="1e300"), "total steps '1e300' take longer"),
        (row(at="-1"), "arrival time '-1'"),
        (row(at="nan"), "arrival time 'nan' is no number"),
        (row(at="inf"), "arrival time 'inf' is no number"),
        (row(at="1e300"), "arrival time '1e300'"),
        (row("GAN"), "job type 'GAN' has no rate"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, broken: str, said: str) -> None:
    with pytest.raises(FileError) as caught:
        read(folder(tmp_path, {"vc": [row(), row(), broken, row()]}))
    assert f"{tmp_path / 'vc.trace'}, line 3: " in caught.value.message
    assert said in caught.value.message


def test_bytes_that_are_no_text_are_a_broken_row(tmp_path: Path) -> None:
    folder(tmp_path, {"vc": [row()]})
    (tmp_path / "vc.trace").write_bytes(row().encode() + b"\n\xff\xfe\n")
    with pytest.raises(FileError, match=r"vc\.trace, line 2: "):
        read(tmp_path)


def test_traces_without_a_job_say_so(tmp_path: Path) -> None:
    folder(tmp_path, {"vc": [], "wd": []})
    with pytest.raises(FileError, match="holds a job"):
        read(tmp_path)


def test_a_folder_without_traces_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no file that ends in \.trace"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON object with an entry v100"),
        ("[]", "no JSON object with an entry v100"),
        ('{"k80": {}}', "no JSON object with an entry v100"),
        ('{"v100": []}', "v100 is no object"),
        ('{"v100": {"LM": {"null": 1.0}}}', "key 'LM' is not of the form"),
        (json.dumps({"v100": {"('LM', 1)": {"null": 0}}}), "('LM', 1): null is 0"),
        (json.dumps({"v100": {"('LM', 1)": {"null": "fast"}}}), "('LM', 1): null is 'fast'"),
        (json.dumps({"v100": {"('LM', 1)": {}}}), "('LM', 1): null is None"),
        (json.dumps({"v100": {"('LM', 1)": 3}}), "('LM', 1): null is None"),
        ("[" * 100_000, "no JSON object with an entry v100"),
        (json.dumps({"v100": {"('LM', 1)": {"null": 10**400}}}), "no number of steps a second above 0, below 1e12"),
        (json.dumps({"v100": {f"('LM', {'1' * 5000})": {"null": 1.0}}}), "is not of the form"),
    ],
)
def test_a_broken_file_of_rates_is_named(tmp_path: Path, content: str, said: str) -> None:
    folder(tmp_path, {"vc": [row()]})
    (tmp_path / RATES_FILE).write_text(content)
    with pytest.raises(FileError) as caught:
        read(tmp_path)
    assert str(tmp_path / RATES_FILE) in caught.value.message
    assert said in caught.value.message


def test_no_file_of_rates_is_named(tmp_path: Path) -> None:
    folder(tmp_path, {"vc": [row()]})
    (tmp_path / RATES_FILE).unlink()
    with pytest.raises(FileError, match="durations come from it"):
        read(tmp_path)
