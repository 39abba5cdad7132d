"""`farside alerts`: what has gone wrong, whether it is over, and who was told."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from contracts import registry
from contracts.alerts import (
    Alert,
    AlertPhase,
    AlertRecord,
    AlertsQuery,
    Notification,
    ResolveRequest,
)
from libs.cli import options, output, words
from libs.cli.errors import CliError
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, every, run

MAX_REASON = 1024
SHORT_ID = 18
ALERTNAME = "alertname"
DELIVERED = "delivered"


@click.group(cls=ManualGroup, invoke_without_command=True)
@click.option(
    "--state", type=click.Choice([phase.value for phase in AlertPhase]), help="Only those that fire, or are over."
)
@options.common
@click.pass_context
def alerts(ctx: click.Context, state: str | None, stack: Path | None, *, as_json: bool) -> None:
    """List alerts, newest first, and what became of telling them.

    Level 1 is the gravest. SINCE is how long ago the alert fired, ENDED how long ago it was over. SEEN counts what
    happened while it fired. TOLD names each webhook and what became of its notifications: delivered, waiting (tried
    again by itself) or parked (tried no more); `farside alerts show ID` says why.

    \b
    Examples:
      farside alerts
      farside alerts --state firing --json
    """
    if ctx.invoked_subcommand is None:
        run(_list(state, stack, as_json=as_json))
    elif state is not None or stack is not None or as_json:
        msg = f"--state, --stack and --json before {ctx.invoked_subcommand} are those of the list: put them after it"
        raise click.UsageError(msg)


async def _list(state: str | None, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await all_alerts(session, None if state is None else AlertPhase(state))
    if as_json:
        output.as_json({"alerts": found})
        return
    now = datetime.now(UTC)
    headers = ("ID", "LEVEL", "NAME", "LABELS", "SINCE", "ENDED", "STATE", "SEEN", "TOLD")
    output.table(headers, [row(record, now) for record in found], empty=f"no alert{f' is {state}' if state else ''}")


async def all_alerts(session: Session, state: AlertPhase | None = None) -> list[AlertRecord]:
    """Every alert, newest firing first."""
    return await every(
        lambda cursor: session.ask(registry.QUERY_ALERTS, AlertsQuery(state=state, cursor=cursor)),
        lambda page: page.alerts,
    )


def row(record: AlertRecord, now: datetime) -> tuple[str, ...]:
    """One line of the table. SINCE is the age of the firing, ENDED that of the end."""
    alert = record.alert
    return (
        alert.alert_id[:SHORT_ID],
        str(alert.level),
        alert.name,
        labels(alert),
        words.age(alert.fired_at, now),
        "" if alert.resolved_at is None else words.age(alert.resolved_at, now),
        alert.state,
        str(alert.seen),
        told(record.notifications),
    )


def labels(alert: Alert) -> str:
    """`tenant=acme job=01a2...`, the name left out."""
    return " ".join(f"{name}={value}" for name, value in alert.labels.items() if name != ALERTNAME)


def told(notifications: Sequence[Notification]) -> str:
    """`pager delivered, chat waiting`: of each receiver, the state of the first notification not delivered."""
    states: dict[str, str] = {}
    for one in notifications:
        if states.get(one.receiver, DELIVERED) == DELIVERED:
            states[one.receiver] = one.state
    return ", ".join(f"{receiver} {state}" for receiver, state in states.items())


@alerts.command()
@click.argument("prefix", metavar="ID")
@options.common
def show(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    """Show alert ID (or the alert whose id begins so): its labels, annotations and notifications.

    Example:
      farside alerts show 01a22b7c-5c80-7d0c

    """
    run(_show(prefix, stack, as_json=as_json))


async def _show(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        record = find(await all_alerts(session), prefix)
    if as_json:
        output.as_json(record)
        return
    alert = record.alert
    output.record(
        [
            ("id", alert.alert_id),
            ("alert", f"{alert.name}, level {alert.level}"),
            ("labels", labels(alert)),
            ("fingerprint", alert.fingerprint),
            ("state", alert.state),
            ("seen", str(alert.seen)),
            ("fired at", words.moment(alert.fired_at)),
            ("resolved at", "" if alert.resolved_at is None else words.moment(alert.resolved_at)),
            ("resolution", alert.resolution),
            *alert.annotations.items(),
        ]
    )
    headers = ("RECEIVER", "ABOUT", "STATE", "TRIES", "AT", "MESSAGE")
    rows = [
        (one.receiver, one.about, one.state, str(one.tries), words.moment(one.at), one.message)
        for one in record.notifications
    ]
    output.table(headers, rows, empty="no webhook was to be told")


def find(records: Sequence[AlertRecord], prefix: str) -> AlertRecord:
    """The one alert whose id begins with `prefix`. Raises CliError."""
    found = [record for record in records if record.alert.alert_id.startswith(prefix.lower())]
    if not found:
        msg = f"no alert has an id that begins with {prefix}: `farside alerts` lists them"
        raise CliError(msg)
    if len(found) > 1:
        msg = f"{len(found)} alerts have ids that begin with {prefix}: give more of it, as in {found[0].alert.alert_id}"
        raise CliError(msg)
    return found[0]


@alerts.command()
@click.argument("prefix", metavar="ID")
@click.argument("reason")
@options.common
def resolve(prefix: str, reason: str, stack: Path | None, *, as_json: bool) -> None:
    """End alert ID by hand; REASON is kept with it, and told to whom the alert was told.

    Do it for what nothing resolves by itself, such as a node that never comes back. Should it happen again, the alert
    fires anew.

    Example:
      farside alerts resolve 01a22b7c-5c80-7d0c "taken out of the rack"

    """
    if not 0 < len(reason) <= MAX_REASON:
        msg = f"REASON has {len(reason)} characters: say in 1 to {MAX_REASON} why the alert is dealt with"
        raise click.BadParameter(msg)
    before, after = run(_resolve(prefix, reason, stack))
    if as_json:
        output.as_json(after)
    elif before.state is AlertPhase.RESOLVED:
        output.note(f"alert {after.alert_id} was over before: {after.resolution}")
    else:
        output.note(f"alert {after.alert_id} is over: {after.resolution}")


async def _resolve(prefix: str, reason: str, stack: Path | None) -> tuple[Alert, Alert]:
    async with connected(stack) as session:
        before = find(await all_alerts(session), prefix).alert
        request = ResolveRequest(alert_id=before.alert_id, reason=reason)
        return before, (await session.ask(registry.CALL_RESOLVE, request)).alert
