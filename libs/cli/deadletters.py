"""`farside deadletter`: messages that a consumer could not process, and a second chance for them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from nats.errors import Error as NatsError

from libs.bus import deadletters
from libs.bus.deadletters import Buried
from libs.bus.errors import BusError
from libs.cli import options, output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, run

LIST_LIMIT = 50
SHORT_ID = 13
SHOWN_BYTES = 4096
MESSAGE_WIDTH = 100


@click.group(cls=ManualGroup)
def deadletter() -> None:
    """List, show and replay messages that could not be processed.

    A message that a consumer refuses for good, or fails on again and again, is put aside whole with the reason, so that
    nothing waits behind it. Once the cause is mended, a replay gives it to that consumer again, and to no other.
    """


@deadletter.command("list")
@click.option(
    "--consumer", default="*", metavar="NAME", help="Only those of one consumer, such as scheduler-jobs-submit."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=LIST_LIMIT, show_default=True, help="At most so many.")
@options.common
def list_(consumer: str, limit: int, stack: Path | None, *, as_json: bool) -> None:
    """List dead letters, newest first. `show` and `replay` take an id or its beginning.

    Examples:
      farside deadletter list
      farside deadletter list --consumer scheduler-jobs-submit --json

    """
    run(_list(consumer, limit, stack, as_json=as_json))


async def _list(consumer: str, limit: int, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        session.for_operator("reading dead letters")
        newest = (await deadletters.find_all(session.client, consumer=consumer, limit=limit))[::-1]
    if as_json:
        output.as_json({"deadletters": [as_dict(item) for item in newest]})
        return
    now = datetime.now(UTC)
    rows = [
        (
            item.id[:SHORT_ID],
            words.age(item.at, now),
            item.letter.consumer,
            item.letter.reason,
            item.letter.message[:MESSAGE_WIDTH],
        )
        for item in newest
    ]
    output.table(("ID", "AGE", "CONSUMER", "REASON", "MESSAGE"), rows, empty="no dead letter")


@deadletter.command()
@click.argument("prefix", metavar="ID")
@options.common
def show(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    """Show dead letter ID: the reason, the headers and the body as they came.

    Example:
      farside deadletter show 457ca6c7

    """
    run(_show(prefix, stack, as_json=as_json))


async def _show(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await _find(session, prefix)
    if as_json:
        output.as_json(as_dict(found))
        return
    letter = found.letter
    place = f"{letter.stream} {letter.stream_sequence}, delivered {letter.deliveries} times"
    output.record(
        [
            ("id", found.id),
            ("consumer", letter.consumer),
            ("reason", f"{letter.reason}: {letter.message}"),
            ("subject", letter.subject),
            ("stood at", place),
            ("died at", words.moment(letter.died_at)),
            *((f"  {name}", value) for name, value in letter.headers.items()),
        ]
    )
    click.echo(letter.data[:SHOWN_BYTES].decode(errors="backslashreplace"))
    if len(letter.data) > SHOWN_BYTES:
        output.note(f"the body has {len(letter.data)} bytes; --json prints all of it")


@deadletter.command()
@click.argument("prefix", metavar="ID")
@options.common
def replay(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    """Give dead letter ID to the consumer that failed on it, and to no other.

    The message keeps its id: had it been processed meanwhile, it has no second effect. What cannot be processed this
    time either becomes a new dead letter.

    Example:
      farside deadletter replay 457ca6c7

    """
    run(_replay(prefix, stack, as_json=as_json))


async def _replay(prefix: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await _find(session, prefix)
        try:
            ack = await deadletters.replay(session.client, found)
        except (NatsError, TimeoutError) as error:
            msg = f"dead letter {found.id} could not be sent: {error!r}; `farside provision` makes the stream"
            raise UnreachableError(msg) from None
    if as_json:
        output.as_json({"id": found.id, "consumer": found.letter.consumer, "replay_sequence": ack.sequence})
    else:
        output.note(f"dead letter {found.id} is on its way to {found.letter.consumer}")


async def _find(session: Session, prefix: str) -> Buried:
    session.for_operator("reading dead letters")
    try:
        return await deadletters.find(session.client, prefix)
    except BusError as error:
        raise CliError(str(error)) from None


def as_dict(item: Buried) -> dict[str, Any]:
    """What `--json` prints; `data` is text where it is UTF-8, and always base64 in `data_base64`."""
    fields = item.letter.model_dump(mode="json")
    encoded = fields.pop("data")
    try:
        text: str | None = item.letter.data.decode()
    except UnicodeDecodeError:
        text = None
    return {"id": item.id, **fields, "data": text, "data_base64": encoded}
