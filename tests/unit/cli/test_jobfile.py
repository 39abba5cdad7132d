"""Job files: each mistake is told with its line, field, value and what was expected there."""

import pytest

from contracts.jobs import JobKind, JobSpec
from libs.cli import jobfile
from libs.cli.errors import USAGE, FileError

JOB_ID = "0190aaaa-0000-7000-8000-000000000000"
GOOD = "name: a\nkind: training\ncommand: [python, train.py]\nmax_runtime_s: 60\n"


def mistakes(text: str) -> list[tuple[int, str, str]]:
    found = jobfile.parse(text, job_id=JOB_ID, tenant="acme")
    assert not isinstance(found, JobSpec)
    return [(mistake.line, mistake.field, mistake.message) for mistake in found]


def test_a_good_file_becomes_a_job_of_the_tenant() -> None:
    spec = jobfile.parse(GOOD, job_id=JOB_ID, tenant="acme")
    assert isinstance(spec, JobSpec)
    assert (spec.job_id, spec.tenant, spec.kind) == (JOB_ID, "acme", JobKind.TRAINING)


@pytest.mark.parametrize(
    ("line", "field", "message"),
    [
        (
            "kind: trainning",
            "kind",
            'is "trainning"; expected one of training, fine_tuning, inference, preprocessing, batch, did you mean',
        ),
        ("command: []", "command", "is []; expected a list of 1 to 256 items"),
        ("resources: {cards: -1}", "resources.cards", "is -1; expected a whole number from 0 to 64"),
        ("resources: {cards: 2.5}", "resources.cards", "is 2.5; expected a whole number from 0 to 64"),
        ("resources: {cards: '2'}", "resources.cards", 'is "2"; expected a whole number from 0 to 64'),
        ("resources: {cards: yes}", "resources.cards", "is true; expected a whole number from 0 to 64"),
        ("resources: 2", "resources", "is 2; expected a mapping with the fields cards, accelerator, "),
        ("resources: {card: 2}", "resources.card", "is no field of a job file, did you mean 'cards'?"),
        ("prority: high", "prority", "is no field of a job file, did you mean 'priority'?"),
        ("colour: red", "colour", "is no field of a job file; known are name, kind, command, "),
        ("name: My Job", "name", 'is "My Job"; expected a name of 1 to 63 characters out of a-z, 0-9 and -'),
        ("dataset: {name: digits}", "dataset.version", "is missing; expected a name of 1 to 63 characters"),
        ("env: {1A: x}", "env", "has the key '1A'; expected a variable name"),
        ("env: {A: 1}", "env.A", "is 1; expected a text of at most 4096 characters"),
        ("command: [python, 3]", "command[1]", "is 3; expected a text of at most 4096 characters"),
        ("max_runtime_s: 999999999999", "max_runtime_s", "is 999999999999; expected a whole number from 1 to 31622400"),
        ("artefact: {uri: http://x, sha256: '0'}", "artefact.uri", 'is "http://x"; expected an address like s3://'),
        ("tenant: acme", "tenant", "does not belong in a job file: leave it out and pass --tenant"),
        ("job_id: x", "job_id", "does not belong in a job file: leave it out, or pass --job-id"),
        ("on_partition: keep", "on_partition", "is 'keep': only inference jobs may keep running unseen"),
    ],
)
def test_one_mistake(line: str, field: str, message: str) -> None:
    key = line.partition(":")[0]
    kept = [good for good in GOOD.splitlines() if not good.startswith(f"{key}:")]
    found = mistakes("\n".join([*kept, line]))
    place, told, words = found[0]
    assert (place, told) == (len(kept) + 1, field)
    assert words.startswith(message)


def test_missing_fields_are_named() -> None:
    assert mistakes("name: a") == [
        (0, "kind", "is missing; expected one of training, fine_tuning, inference, preprocessing, batch"),
        (0, "command", "is missing; expected a list of 1 to 256 items"),
    ]
    assert mistakes("name: a\nkind: batch\ncommand: [x]")[0][1:] == (
        "max_runtime_s",
        "is missing: a batch job states its longest run in seconds, for example 3600",
    )


def test_a_field_given_twice_is_a_mistake() -> None:
    assert mistakes(GOOD + "name: b\n") == [(5, "name", "is given twice; keep one")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("just words", 'is "just words"; expected a mapping'),
        ("name: [", "is not YAML"),
        ("name: a\n\tkind: b", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        ("name: !!python/object:os.system {}", "is not YAML"),
        ("name: \x00", "is not YAML"),
    ],
)
def test_what_is_no_job_file(text: str, message: str) -> None:
    assert mistakes(text)[0][2].startswith(message)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    with pytest.raises(FileError) as raised:
        jobfile.read("job.yaml", "name: B\nkind: x\ncommand: []\nfoo: 1\n", job_id=JOB_ID, tenant="acme")
    lines = str(raised.value.message).splitlines()
    assert lines[0] == "nothing was sent: 4 mistakes in job.yaml"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [f"job.yaml, line {number}" for number in (1, 2, 3, 4)]
    assert raised.value.exit_code == USAGE
