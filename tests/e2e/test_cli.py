"""Everyday commands against a running stack, as a person types them: what they print and how they end."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contracts.registry import SERVICES
from libs.cli.main import cli
from libs.kit.ids import new_id
from tests.e2e.shell import Shell, job_file, running_stack
from tests.waiting import until_sync

ROOT = Path(__file__).parents[2]
WAIT_S = 30


@pytest.fixture(scope="module")
def farside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_stack(tmp_path_factory.mktemp("cli")) as shell:
        yield shell


def test_nodes(farside: Shell) -> None:
    shown = farside("nodes")
    assert [line.split()[0] for line in shown.out.splitlines()] == [
        "NODE",
        "central-1",
        "central-2",
        "remote-1",
        "remote-2",
    ]
    nodes = farside("nodes", "--json").json()["nodes"]
    assert [(node["node"], node["state"], len(node["facts"]["cards"])) for node in nodes] == [
        ("central-1", "ready", 2),
        ("central-2", "ready", 2),
        ("remote-1", "ready", 1),
        ("remote-2", "ready", 1),
    ]


def test_a_job_with_its_code_from_submit_to_its_log(farside: Shell, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "hello.py").write_text("print('hello from the artefact')\n")
    file = tmp_path / "job.yaml"
    file.write_text(job_file("hello", command=["python", "hello.py"]))
    submitted = farside("job", "submit", file, "--dir", code)
    assert submitted.status == 0, submitted.err
    job_id = submitted.out.strip()
    watched = farside("job", "watch", job_id)
    assert watched.status == 0, watched.err
    assert "finished" in watched.out
    assert farside("job", "logs", job_id).out == "hello from the artefact\n"
    [line] = farside("job", "logs", job_id, "--json").out.splitlines()
    assert json.loads(line) == {"attempt": 1, "member": 0, "chunk": 0, "text": "hello from the artefact\n"}
    shown = farside("job", "show", "hello", "--json").json()
    assert (shown["job"]["job_id"], shown["job"]["outcome"]) == (job_id, "succeeded")
    assert shown["transitions"][0]["state"] == "accepted"
    assert job_id in [job["job_id"] for job in farside("job", "list", "--json").json()["jobs"]]
    assert farside("why", "hello", "--json").json()["reason"] == "completed"


def test_a_job_that_fails_is_watched_to_its_failure(farside: Shell) -> None:
    job_id = farside.submit("fails", command=["python", "-c", "raise SystemExit('no luck')"])
    watched = farside("job", "watch", job_id)
    assert watched.status == 1
    assert "finished: failed" in watched.out
    assert "no luck" in farside("job", "logs", job_id).out


def test_mistakes_are_told_before_anything_is_sent(farside: Shell, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: bad\nkind: trainning\ncommand: [x]\nresources: {cards: -1}\nmax_runtime_s: 60\n")
    done = farside("job", "submit", file)
    assert done.status == 2
    assert f'{file}, line 2: kind is "trainning"; expected one of training, fine_tuning' in done.err
    assert f"{file}, line 4: resources.cards is -1; expected a whole number from 0 to 64" in done.err
    assert farside("why", "bad").status == 1


@pytest.mark.parametrize(
    ("tenant", "fields", "words"),
    [
        ("beta", {"max_runtime_s": 36000, "checkpoint": {"keep_last": 1}}, "quota_exceeded"),
        ("acme", {"resources": {"cards": 9}}, "no_such_node_type"),
        ("acme", {"max_runtime_s": 36000}, "checkpoint_required"),
        ("nobody", {}, "unknown_tenant"),
        ("beta", {"priority": "online"}, "priority_not_allowed"),
    ],
)
def test_a_refusal_names_its_reason(farside: Shell, tenant: str, fields: dict[str, object], words: str) -> None:
    text = job_file("refused", **fields)
    done = farside("job", "submit", "-", stdin=text, tenant=tenant)
    assert done.status == 1
    assert f"job refused was refused, {words}: " in done.err
    told = farside("job", "submit", "-", "--json", stdin=text, tenant=tenant)
    assert told.status == 1
    assert told.json()["reason"]["code"] == words
    assert f"{words}: " in farside("why", "refused", tenant=tenant).out
    why = farside("why", told.json()["job_id"], "--json", tenant=tenant).json()
    assert (why["outcome"], why["reason"]) == ("rejected", words)


def test_a_refusal_for_quota_tells_used_asked_and_allowed(farside: Shell) -> None:
    done = farside("job", "submit", "-", stdin=job_file("big", max_runtime_s=36000, checkpoint={}), tenant="beta")
    assert "used 0 GPU-hours, asked 10 GPU-hours, allowed 2 GPU-hours" in done.err


def test_the_same_job_again_is_the_same_job_another_body_is_refused(farside: Shell) -> None:
    job_id = new_id()
    again = ("job", "submit", "-", "--job-id", job_id)
    text = job_file("twice", command=["python", "-c", "pass"])
    assert farside(*again, stdin=text).status == 0
    assert farside(*again, stdin=text).out.strip() == job_id
    other = farside(*again, stdin=job_file("thrice", command=["python", "-c", "pass"]))
    assert other.status == 1
    assert "job_id_reused" in other.err


def test_hold_release_cancel(farside: Shell) -> None:
    sleep = ["python", "-c", "import time; time.sleep(900)"]
    jobs = [
        farside.submit(f"blocker-{number}", resources={"cards": 2}, command=sleep, max_runtime_s=900)
        for number in range(2)
    ]
    try:
        waiting = farside.submit("patient", resources={"cards": 2})
        jobs.insert(0, waiting)
        why = until_sync(lambda: reason(farside, waiting, "waiting_for_cards"), WAIT_S) or {}
        assert (why["state"], why["resource"]) == ("waiting", "cards")
        assert "is held" in farside("job", "hold", waiting).err
        assert farside("why", waiting, "--json").json()["reason"] == "on_hold"
        assert "is waiting" in farside("job", "release", waiting).err
    finally:
        ended = [farside("job", "cancel", job_id, "--reason", "enough", "--json") for job_id in jobs]
    assert [(done.status, done.json()["outcome"]) for done in ended] == [(0, "cancelled")] * 3
    for order in ("cancel", "hold", "release"):
        again = farside("job", order, waiting)
        assert (again.status, "is over (finished: cancelled): " in again.err) == (1, True), again.err


def reason(farside: Shell, job_id: str, code: str) -> dict[str, Any] | None:
    """What `why` says, once it gives that reason."""
    why = farside("why", job_id, "--json").json()
    return why if why["reason"] == code else None


def test_a_cancel_may_come_before_its_job(farside: Shell) -> None:
    job_id = new_id()
    early = farside("job", "cancel", job_id)
    assert early.status == 0
    assert "kept for when it comes" in early.err
    farside("job", "submit", "-", "--job-id", job_id, stdin=job_file("too-late"))
    assert farside("why", job_id, "--json").json()["outcome"] == "cancelled"


def test_logs_outlive_their_node_and_follow_ends_with_the_job(farside: Shell) -> None:
    job_id = farside.submit("talks", kind="batch", retries=0)
    follow = farside("job", "logs", "-f", job_id)
    assert follow.status == 0
    lines = follow.out.splitlines()
    node = farside("job", "show", job_id, "--json").json()["job"]["attempt"]["members"][0]["node"]
    assert farside("down", node).status == 0
    try:
        assert farside("job", "logs", job_id).out.splitlines() == lines == [f"line {number}" for number in range(200)]
    finally:
        assert farside("up", node).status == 0


def test_datasets_and_checkpoints(farside: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "a.txt").write_text("1\n")
    put = ("dataset", "put", folder, "--name", "numbers", "--version", "v1")
    first = farside(*put)
    assert first.status == 0, first.err
    assert farside(*put).out == first.out
    (folder / "a.txt").write_text("2\n")
    changed = farside(*put)
    assert changed.status == 1
    assert "numbers v1 was not staged" in changed.err
    [listed] = farside("dataset", "list", "--name", "numbers", "--json").json()["datasets"]
    assert (listed["dataset"], listed["objects"]) == ({"name": "numbers", "version": "v1"}, 1)
    reader = farside.submit(
        "reads",
        dataset={"name": "numbers", "version": "v1"},
        command=["python", "-c", "import libs.sdk as f; print(f.attach().dataset().joinpath('a.txt').read_text())"],
    )
    assert farside("job", "watch", reader).status == 0
    assert farside("job", "logs", reader).out.startswith("1\n")
    assert farside("checkpoint", "list", reader, "--json").json()["checkpoints"] == []


def test_a_dead_letter_is_listed_shown_and_replayed(farside: Shell) -> None:
    code = (
        "import asyncio, json, nats, sys\n"
        "async def main():\n"
        "    nc = await nats.connect(json.load(open(sys.argv[1]))['nats_url'])\n"
        "    headers = {'Nats-Msg-Id': 'x'}\n"
        "    await nc.jetstream().publish('jobs.v1.submit.acme', b'not json', stream='JOBS_CMD', headers=headers)\n"
        "    await nc.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code, farside.folder / "stack" / "stack.json"], check=True)
    [buried] = until_sync(lambda: letters(farside, 1), WAIT_S) or []
    letter_id = buried["id"]
    assert buried["consumer"] == "scheduler-jobs-submit"
    shown = farside("deadletter", "show", letter_id[:8])
    assert "not json" in shown.out
    assert farside("deadletter", "replay", letter_id).status == 0
    again = until_sync(lambda: letters(farside, 2), WAIT_S) or []
    assert [letter["data"] for letter in again] == ["not json", "not json"]
    missing = farside("deadletter", "show", "99999999")
    assert missing.status == 1
    assert "no dead letter has an id that begins with '99999999'" in missing.err


def letters(farside: Shell, count: int) -> list[dict[str, Any]] | None:
    """The dead letters, once there are so many."""
    found = farside("deadletter", "list", "--json").json()["deadletters"]
    return found if len(found) >= count else None


def test_a_closed_breaker_holds_nothing(farside: Shell) -> None:
    assert farside("breaker", "release", "nothing to it", "--json").json() == {"was_open": False, "released": 0}
    assert "holds nothing" in farside("breaker", "release", "nothing to it").err
    assert farside("breaker", "release", "").status == 2


def test_what_is_not_there_is_said(farside: Shell) -> None:
    for words in (("why", "ghost"), ("job", "show", "ghost"), ("job", "logs", "ghost"), ("job", "cancel", "ghost")):
        done = farside(*words)
        assert done.status == 1, words
        assert "ghost" in done.err


def test_the_plain_publisher_submits_by_the_schema(farside: Shell, tmp_path: Path) -> None:
    url = json.loads((farside.folder / "stack" / "stack.json").read_text())["nats_url"]
    schema = ROOT / "contracts" / "schemas" / "jobs.submit.v1.json"
    job = {**json.loads(job_file("plain", command=["python", "-c", "pass"])), "job_id": new_id(), "tenant": "acme"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    publish = [sys.executable, ROOT / "examples" / "publish.py", url, schema, file]
    subprocess.run(publish, check=True)
    assert farside("job", "watch", job["job_id"]).status == 0
    file.write_text(json.dumps({**job, "kind": "nonsense"}))
    assert subprocess.run(publish, check=False, capture_output=True).returncode != 0


def test_status_says_where_the_metrics_of_each_process_are(farside: Shell) -> None:
    parts = farside("status", "--json").json()["parts"]
    told = {part["name"]: part["detail"].partition("metrics at ")[2] for part in parts}
    with_metrics = {name for name, address in told.items() if address}
    assert with_metrics == {*SERVICES, "central-1", "central-2", "remote-1", "remote-2"}
    for address in (told["metering"], told["remote-1"]):
        connection = http.client.HTTPConnection(address, timeout=WAIT_S)
        connection.request("GET", "/metrics")
        assert "farside_build_info{" in connection.getresponse().read().decode()
        connection.close()


def test_a_closing_for_a_name_that_never_used_anything_says_so(farside: Shell) -> None:
    done = farside("bill", "close", "--tenant", "nosuch")
    assert (done.status, done.out) == (0, "")
    assert "closing 1 of nosuch: 0 samples" in done.err
    assert "nothing billable was ever measured for tenant nosuch" in done.err


def test_a_tenant_works_by_its_own_user(farside: Shell, tmp_path: Path) -> None:
    stack = json.loads((farside.folder / "stack" / "stack.json").read_text())
    env = {
        "FARSIDE_NATS_URL": stack["tenants"]["acme"],
        "FARSIDE_TENANT": None,
        "FARSIDE_S3_ENDPOINT": stack["s3"]["endpoint"],
        "FARSIDE_S3_ACCESS_KEY": stack["s3"]["access_key"],
        "FARSIDE_S3_SECRET_KEY": stack["s3"]["secret_key"],
    }
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "one").write_text("1\n")

    def acme(*words: str | Path, stdin: str = "") -> str:
        done = CliRunner().invoke(cli, [str(word) for word in words], input=stdin, env=env)
        assert done.exit_code == 0, done.output
        return done.stdout

    acme("dataset", "put", folder, "--name", "own", "--version", "v1")
    assert "own" in acme("dataset", "list")
    job_id = acme("job", "submit", "-", stdin=job_file("own", command=["echo", "hello"])).strip()
    assert "succeeded" in acme("job", "watch", job_id)
    assert acme("job", "logs", job_id) == "hello\n"
    until_sync(lambda: "acme" in acme("usage", job_id), WAIT_S, "the usage of the job")
    assert farside("bill", "close").status == 0
    [invoice, *_] = json.loads(acme("bill", "list", "--json"))["invoices"]
    assert acme("bill", "show", invoice["invoice_id"])
    assert acme("checkpoint", "list", job_id) is not None
    refused = CliRunner().invoke(cli, ["bill", "verify", "--last"], env=env)
    assert (refused.exit_code, "reading streams is the operator's" in refused.stderr) == (1, True)
