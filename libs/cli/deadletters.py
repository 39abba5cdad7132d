"""`farside deadletter`: messages that a consumer could not process, and a second chance for them."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from nats.errors import Error as NatsError

from contracts import registry
from contracts.deadletters import DeadLetter
from libs.bus.codec import MSG_ID
from libs.bus.events import Event
from libs.bus.work import SUBJECT_HEADER
from libs.cli import options, output, words
from libs.cli.errors import CliError, UnreachableError
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, run
from libs.kit.ids import new_id

LIST_LIMIT = 50
QUIET_S = 3.0
SHOWN_BYTES = 4096
MESSAGE_WIDTH = 100


@dataclass(frozen=True)
class Buried:
    """One dead letter with its number, its sequence in the stream of dead letters."""

    number: int
    id: str
    letter: DeadLetter


@click.group(cls=ManualGroup)
def deadletter() -> None:
    """List, show and replay messages that could not be processed.

    A message that a consumer refuses for good, or fails on again and again, is put aside whole with the reason, so that
    nothing waits behind it. Once the cause is mended, a replay gives it to that consumer again, and to no other.
    """


@deadletter.command("list")
@click.option("--consumer", metavar="NAME", help="Only those of one consumer, such as scheduler-jobs-submit.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=LIST_LIMIT, show_default=True, help="At most so many.")
@options.common
def list_(consumer: str | None, limit: int, stack: Path | None, *, as_json: bool) -> None:
    """List dead letters, newest first. NUMBER is what `show` and `replay` take.

    Examples:
      farside deadletter list
      farside deadletter list --consumer scheduler-jobs-submit --json

    """
    run(_list(consumer, limit, stack, as_json=as_json))


async def _list(consumer: str | None, limit: int, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = [item for item in await read_all(session) if consumer in {None, item.letter.consumer}]
    newest = found[::-1][:limit]
    if as_json:
        output.as_json({"deadletters": [as_dict(item) for item in newest]})
        return
    now = datetime.now(UTC)
    rows = [
        (
            str(item.number),
            words.age(item.letter.died_at, now),
            item.letter.consumer,
            item.letter.reason,
            item.letter.message[:MESSAGE_WIDTH],
        )
        for item in newest
    ]
    output.table(("NUMBER", "AGE", "CONSUMER", "REASON", "MESSAGE"), rows, empty="no dead letter")


@deadletter.command()
@click.argument("number", type=click.IntRange(1))
@options.common
def show(number: int, stack: Path | None, *, as_json: bool) -> None:
    """Show dead letter NUMBER: the reason, the headers and the body as they came.

    Example:
      farside deadletter show 3

    """
    run(_show(number, stack, as_json=as_json))


async def _show(number: int, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await read_one(session, number)
    if as_json:
        output.as_json(as_dict(found))
        return
    letter = found.letter
    place = f"{letter.stream} {letter.stream_sequence}, delivered {letter.deliveries} times"
    output.record(
        [
            ("number", str(found.number)),
            ("id", found.id),
            ("consumer", letter.consumer),
            ("reason", f"{letter.reason}: {letter.message}"),
            ("subject", letter.subject),
            ("stood at", place),
            ("died at", letter.died_at.isoformat(sep=" ", timespec="seconds")),
            *((f"  {name}", value) for name, value in letter.headers.items()),
        ]
    )
    click.echo(letter.data[:SHOWN_BYTES].decode(errors="backslashreplace"))
    if len(letter.data) > SHOWN_BYTES:
        output.note(f"the body has {len(letter.data)} bytes; --json prints all of it")


@deadletter.command()
@click.argument("number", type=click.IntRange(1))
@options.common
def replay(number: int, stack: Path | None, *, as_json: bool) -> None:
    """Give dead letter NUMBER to the consumer that failed on it, and to no other.

    The message keeps its id: had it been processed meanwhile, it has no second effect. What cannot be processed this
    time either becomes a new dead letter.

    Example:
      farside deadletter replay 3

    """
    run(_replay(number, stack, as_json=as_json))


async def _replay(number: int, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        found = await read_one(session, number)
        subject = registry.replay_subject(found.letter.consumer)
        headers = {**found.letter.headers, SUBJECT_HEADER: found.letter.subject, MSG_ID: new_id()}
        try:
            ack = await session.client.js.publish(
                subject, found.letter.data, stream=registry.REPLAYS.name, headers=headers
            )
        except (NatsError, TimeoutError) as error:
            msg = (
                f"dead letter {number} could not be sent to {subject}: {error!r}; `farside provision` makes the stream"
            )
            raise UnreachableError(msg) from None
    if as_json:
        output.as_json({"number": number, "consumer": found.letter.consumer, "replay_sequence": ack.seq})
    else:
        output.note(f"dead letter {number} is on its way to {found.letter.consumer}")


async def read_all(session: Session) -> list[Buried]:
    """Every dead letter, oldest first: up to the end that the stream has now."""
    end = await session.next_sequence(registry.DEADLETTERED) - 1
    info = await session.client.js.stream_info(registry.DEADLETTERS.name)
    found: list[Buried] = []
    if not info.state.messages:
        return found
    async with aclosing(session.client.events([registry.DEADLETTERED], since="all")) as events:
        while not found or found[-1].number < end:
            try:
                event = await asyncio.wait_for(anext(events), QUIET_S)
            except TimeoutError:
                # The last ones cannot be read (the reader leaves them out), so the end never comes into sight.
                break
            found.append(_buried(event))
    return found


async def read_one(session: Session, number: int) -> Buried:
    """The dead letter with that number; CliError when there is none."""
    async with aclosing(session.client.events([registry.DEADLETTERED], since=number)) as events:
        end = await session.next_sequence(registry.DEADLETTERED) - 1
        event = await asyncio.wait_for(anext(events), QUIET_S) if number <= end else None
    found = _buried(event) if event is not None else None
    if found is None or found.number != number:
        msg = f"there is no dead letter {number}: `farside deadletter list` shows those there are"
        raise CliError(msg)
    return found


def _buried(event: Event[Any]) -> Buried:
    assert event.delivery is not None, "what a reader yields was delivered"
    return Buried(event.delivery.stream_sequence, event.id, event.body)


def as_dict(item: Buried) -> dict[str, Any]:
    """What `--json` prints; `data` is text where it is UTF-8, and always base64 in `data_base64`."""
    fields = item.letter.model_dump(mode="json")
    encoded = fields.pop("data")
    try:
        text: str | None = item.letter.data.decode()
    except UnicodeDecodeError:
        text = None
    return {"number": item.number, "id": item.id, **fields, "data": text, "data_base64": encoded}
