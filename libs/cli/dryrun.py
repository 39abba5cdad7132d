"""`farside job submit --dry-run`: what would become of a job, as the scheduler would decide it now."""

from contracts import registry
from contracts.jobs import JobSpec
from contracts.queue import DryRunQuery, DryRunReply, Verdict
from libs.cli import explain, output, words
from libs.cli.errors import CliError
from libs.cli.session import Session


async def dry_run(session: Session, spec: JobSpec, *, as_json: bool) -> None:
    """Ask and tell; CliError for a job that would be refused. Nothing of it is kept."""
    said = await session.ask(registry.QUERY_DRY_RUN, DryRunQuery(spec=spec), key=spec.tenant)
    if as_json:
        output.as_json(told(said, spec))
    elif said.verdict != Verdict.REFUSED:
        output.record(lines(said, spec))
        explain.show_leaving(said.leaving)
    if said.verdict == Verdict.REFUSED:
        raise CliError(refusal(said, spec))


def told(said: DryRunReply, spec: JobSpec) -> dict[str, object]:
    """What `--json` prints: the keys of `farside why --json` where they mean the same."""
    reason = said.reason
    return {
        "name": spec.name,
        "tenant": spec.tenant,
        "priority": spec.effective_priority,
        **spec.resources.model_dump(include={"cards", "share_milli", "share_memory_bytes"}),
        "verdict": said.verdict,
        "reason": reason.code if reason is not None else None,
        "message": reason.message if reason is not None else None,
        "resource": reason.resource if reason is not None else None,
        "used": reason.used if reason is not None else None,
        "asked": reason.asked if reason is not None else None,
        "allowed": reason.allowed if reason is not None else None,
        "members": [member.model_dump(mode="json") for member in said.members],
        **explain.as_json(said),
    }


def lines(said: DryRunReply, spec: JobSpec) -> list[tuple[str, str]]:
    """Names with values of a job that would be taken."""
    reason = said.reason
    pairs = [
        ("job", spec.name),
        ("tenant", spec.tenant),
        ("verdict", "would be placed" if said.verdict == Verdict.PLACED else f"would be taken: {said.verdict}"),
        ("asks", words.asked(spec.members, spec.resources)),
        ("on", where(said)),
        ("reason", f"{reason.code}: {reason.message}" if reason is not None else ""),
        ("amounts", words.figures(reason) if reason is not None else ""),
    ]
    if said.verdict == Verdict.PLACED:
        return [*pairs, ("as of", words.moment(said.as_of))]
    return [*pairs, *explain.lines(said)]


def where(said: DryRunReply) -> str:
    """`central-1 (cards 0, 1), central-2 (cards 0)`."""
    return ", ".join(
        f"{member.node} (cards {', '.join(str(card) for card in member.cards)})" if member.cards else member.node
        for member in said.members
    )


def refusal(said: DryRunReply, spec: JobSpec) -> str:
    """The words of a refusal, with its amounts."""
    reason = said.reason
    if reason is None:
        return f"job {spec.name} would be refused"
    amounts = words.figures(reason)
    return f"job {spec.name} would be refused, {reason.code}: {reason.message}{f' ({amounts})' if amounts else ''}"
