"""`farside job submit`: check the file, pack the code, send the job, tell the answer."""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from contracts import registry
from contracts.jobs import Artefact, JobRejected, JobSpec, JobState
from libs.cli import jobfile, options, output, words, yamlfile
from libs.cli.dryrun import dry_run
from libs.cli.errors import CliError, FileError, UnreachableError
from libs.cli.manual import Manual
from libs.cli.pack import Packed, pack
from libs.cli.session import Session, connected, run
from libs.cli.why import state_words
from libs.kit.ids import new_id
from libs.objects import artefact_key

ANSWER_S = 15.0
AGAIN_S = 3.0
ACTOR = "cli"
ANSWERS = (registry.JOBS_ACCEPTED, registry.JOBS_REJECTED)


@dataclass(frozen=True)
class Submission:
    """A checked job with its code, and how it is sent."""

    spec: JobSpec
    packed: Packed | None


@click.command(cls=Manual)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--dir",
    "code",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder with the job's code: packed, uploaded by its digest, and unpacked where the job runs.",
)
@click.option("--job-id", metavar="UUID", help="Id of the job, a new one unless given; the same job may be sent again.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the scheduler's answer.")
@click.option("--dry-run", "trial", is_flag=True, help="Say what would become of the job; nothing is submitted.")
@options.acting_tenant
@options.common_with_code
def submit(
    file: Path,
    code: Path | None,
    job_id: str | None,
    tenant: str,
    stack: Path | None,
    *,
    no_wait: bool,
    trial: bool,
    as_json: bool,
) -> None:
    """Submit the job in FILE (YAML; "-" reads standard input) and wait until it is accepted or refused.

    The file is checked first: a mistake is told with its line, field, value and what was expected there, and nothing is
    sent. docs/cli.md lists the fields. A refusal names its reason and the amounts used, asked and allowed.

    A job file:
      name: digits-train
      kind: training          # training, fine_tuning, inference, preprocessing, batch
      command: [python, train.py]
      resources: {cards: 2}
      max_runtime_s: 3600

    Examples:
      farside job submit train.yaml --dir code --tenant acme
      farside job submit - --no-wait < job.yaml
      farside job submit train.yaml --dry-run

    Exit status: 0 accepted; 1 refused; 2 a mistake in the file; 3 no answer. With --dry-run 0 is a job that would be
    placed at once or wait, with the reason, what is short, what would free it and the start to expect, as `farside why`
    tells them afterwards.

    """
    name, text = _read(file)
    spec = jobfile.read(name, text, job_id=job_id or new_id(), tenant=tenant)
    if code is not None and spec.artefact is not None:
        msg = f"{name}: artefact is given, and so is --dir {code}: keep one of them"
        raise FileError(msg)
    submission = Submission(spec, pack(code) if code is not None else None)
    run(_try(spec, stack, as_json=as_json) if trial else _submit(submission, stack, wait=not no_wait, as_json=as_json))


def _read(file: Path) -> tuple[str, str]:
    if str(file) == "-":
        return "standard input", sys.stdin.read(yamlfile.MAX_FILE_BYTES)
    return str(file), yamlfile.text_of(file, jobfile.JOB_FILE.what)


async def _try(spec: JobSpec, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        await dry_run(session, spec, as_json=as_json)


async def _submit(submission: Submission, stack: Path | None, *, wait: bool, as_json: bool) -> None:
    async with connected(stack) as session:
        spec = await with_artefact(session, submission)
        answer = await send(session, spec, wait=wait)
    if answer is None:
        _tell_sent(spec, as_json=as_json)
    elif isinstance(answer, JobRejected):
        _refuse(answer, spec, as_json=as_json)
    elif as_json:
        output.as_json(answer)
    else:
        output.note(f"accepted: {spec.name} is {state_words(answer)}; `farside job watch {spec.job_id}` follows it")
        click.echo(spec.job_id)


async def send(session: Session, spec: JobSpec, *, wait: bool) -> JobState | JobRejected | None:
    """Publish the job; returns the scheduler's answer, None when not asked to wait for it."""
    since = await session.next_sequence(registry.JOBS_ACCEPTED)
    before = await _before(session, spec)
    message_id = new_id()
    await session.publish(registry.JOBS_SUBMIT, spec, key=spec.tenant, subject=spec.job_id, actor=ACTOR, id=message_id)
    if not wait:
        return None
    # The same job sent again is taken in silence; only another body under its id is answered, by a refusal.
    messages, wait_s = (ANSWERS, ANSWER_S) if before is None else (ANSWERS[1:], AGAIN_S)
    found = await session.first(
        messages, spec.tenant, since, lambda event: answers(event.body, spec, message_id), wait_s
    )
    answer = found.body if found is not None else before or await _before(session, spec)
    if answer is not None:
        return answer
    msg = (
        f"job {spec.name} ({spec.job_id}) was sent, but the scheduler gave no answer within {ANSWER_S:.0f} s: "
        f"`farside status` shows whether it is up, `farside deadletter list` whether the job could not be read"
    )
    raise UnreachableError(msg)


async def _before(session: Session, spec: JobSpec) -> JobState | None:
    """The job, if there is one with this id already."""
    with contextlib.suppress(CliError):
        return await session.job_state(spec.job_id, spec.tenant)
    return None


def answers(body: JobState | JobRejected, spec: JobSpec, message_id: str) -> bool:
    """Whether an event answers this very submission."""
    if isinstance(body, JobRejected):
        return body.submission_id == message_id
    return body.job_id == spec.job_id


async def with_artefact(session: Session, submission: Submission) -> JobSpec:
    """Upload the code, if any, under its digest and name it in the job."""
    spec, packed = submission.spec, submission.packed
    if packed is None:
        return spec
    key = artefact_key(spec.tenant, packed.sha256)
    async with session.store() as store:
        await store.put_if_absent(key, packed.data)
        artefact = Artefact(uri=store.uri(key), sha256=packed.sha256)
    return spec.model_copy(update={"artefact": artefact})


def _tell_sent(spec: JobSpec, *, as_json: bool) -> None:
    if as_json:
        output.as_json({"job_id": spec.job_id, "tenant": spec.tenant, "sent": True})
    else:
        output.note("sent; the scheduler has not been asked for its answer")
        click.echo(spec.job_id)


def _refuse(answer: JobRejected, spec: JobSpec, *, as_json: bool) -> None:
    if as_json:
        output.as_json(answer)
    reason = answer.reason
    amounts = words.figures(reason)
    msg = f"job {spec.name} was refused, {reason.code}: {reason.message}{f' ({amounts})' if amounts else ''}"
    raise CliError(msg)
