"""`farside`: the table of commands, each imported only when it is asked for."""

import importlib
from collections.abc import Sequence

import click
from typing_extensions import override

COMMANDS = {
    "up": "deploy.local.cli:up",
    "down": "deploy.local.cli:down",
    "status": "deploy.local.cli:status",
    "demo": "deploy.demo.cli:demo",
    "accounts": "libs.cli.accounts:accounts",
    "provision": "libs.cli.provision:provision",
    "nodes": "libs.cli.nodes:nodes",
    "node": "libs.cli.node:node",
    "capacity": "libs.cli.capacity:capacity",
    "job": "libs.cli.jobs:job",
    "queue": "libs.cli.queue:queue",
    "why": "libs.cli.why:why",
    "quota": "libs.cli.quota:quota",
    "plan": "libs.cli.plan:plan_",
    "dataset": "libs.cli.datasets:dataset",
    "checkpoint": "libs.cli.checkpoints:checkpoint",
    "usage": "libs.cli.usage:usage",
    "bill": "libs.cli.bills:bill",
    "alerts": "libs.cli.alerts:alerts",
    "trace": "libs.cli.trace:trace",
    "deadletter": "libs.cli.deadletters:deadletter",
    "breaker": "libs.cli.breaker:breaker",
    "bench": "deploy.replay.cli:bench",
}

SUMMARIES = {
    "up": "Start the local stack.",
    "down": "Stop the local stack; its data stays.",
    "status": "Show each part of the stack, its version and its lag.",
    "demo": "Watch a training job survive the death of its node.",
    "accounts": "Print the users of the bus and what each may do, for nats-server.",
    "provision": "Create or update streams and consumers from the registry.",
    "nodes": "List nodes with tier, health, cards and grades; import and export the declared fleet.",
    "node": "Show one node and its history; cordon, drain, uncordon, check and retire it.",
    "capacity": "Assess what the fleet can promise, what is idle, and what could be released.",
    "job": "Submit jobs, list, show, cancel, hold, release, reprioritize and watch them, read their logs.",
    "queue": "List waiting jobs: whose turn it is, why each waits, and until when.",
    "why": "Say why a job waits, was refused or ended.",
    "quota": "Show what tenants may use, have used and have asked for.",
    "plan": "Propose tensor, pipeline and data parallel sizes for a model on a cluster.",
    "dataset": "Put a dataset version into object storage; list those there.",
    "checkpoint": "List the committed checkpoints of a job.",
    "usage": "Show what was used, what of it is billed, and the scheduler's ledger beside it.",
    "bill": "Close a tenant's usage, list and show invoices, prove one from its samples.",
    "alerts": "List alerts and what became of telling them; resolve one by hand.",
    "trace": "Show a job's journey from its submission to its invoice as a waterfall.",
    "deadletter": "List, show and replay messages that could not be processed.",
    "breaker": "Show and release what is held when many nodes fail together.",
    "bench": "Replay public traces through the scheduler's decisions.",
}

EPILOG = """
Exit status: 0 done; 1 refused, failed or not found; 2 wrong usage or a mistake in a file; 3 the stack does not answer.

Environment: FARSIDE_DIR is the stack's directory (default: var), FARSIDE_TENANT the tenant you act for;
FARSIDE_NATS_URL, FARSIDE_S3_ENDPOINT and the like reach a stack that runs elsewhere.
"""


class LazyGroup(click.Group):
    """A group whose commands stay unimported until called; their one-line summaries stand in the table."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            msg = f"{target} is a {type(command).__name__}: the table in libs/cli/main.py must name a click command"
            raise TypeError(msg)
        return command

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from libs.kit.schema import nearest

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = nearest(args[0], COMMANDS)
            ctx.fail(f"no command {args[0]!r}{hint or ':'} `farside --help` lists them")
        return super().resolve_command(ctx, args)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    from importlib.metadata import version

    if value and not ctx.resilient_parsing:
        click.echo(f"farside {version('farside')}")
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def cli() -> None:
    """Farside: the control plane of a fused compute fleet.

    Jobs go in as messages on NATS JetStream, from any language; every change of their state comes out as an event.
    `farside demo` shows a training job that survives the death of its node; `farside COMMAND --help` is the manual of a
    command.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leaves by SystemExit."""
    cli.main(args=list(arguments) if arguments is not None else None, prog_name="farside")
