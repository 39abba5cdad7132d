"""One command's hold on the stack: the bus client, the object store, and errors turned into words."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nats.errors import Error as NatsError

from contracts import registry
from contracts.base import Model
from contracts.jobs import JobState
from contracts.registry import NO_KEY, Message, Request
from contracts.requests import JobQuery, JobReply, ProblemCode
from libs.bus.client import Client
from libs.bus.errors import BusError, Problem
from libs.bus.events import Event
from libs.cli.errors import CliError, UnreachableError
from libs.cli.place import Place, locate
from libs.kit import logs
from libs.kit.settings import ServiceSettings
from libs.objects import AsyncStore, ObjectsError, UnavailableError

M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)
T = TypeVar("T")

REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 10.0
INTERRUPTED = 130
QUIET = "error"
TRACES = "traces"


@dataclass(frozen=True)
class Session:
    """A connected command."""

    place: Place
    client: Client

    async def ask(self, request: Request[M, R], body: M, key: str = NO_KEY) -> R:
        """Send a request; CliError with the service's own words, UnreachableError when nothing answers."""
        try:
            return await self.client.request(request, body, key=key, timeout_s=REQUEST_TIMEOUT_S)
        except Problem as problem:
            if problem.code in {ProblemCode.UNAVAILABLE, ProblemCode.INTERNAL}:
                msg = (
                    f"service {request.service} cannot answer now: {problem.message}; `farside status` shows how it is"
                )
                raise UnreachableError(msg) from None
            raise CliError(problem.message) from None
        except (TimeoutError, BusError, NatsError) as error:
            msg = (
                f"service {request.service} did not answer within {REQUEST_TIMEOUT_S:.0f} s "
                f"({type(error).__name__}): `farside status` shows whether it is up"
            )
            raise UnreachableError(msg) from None

    async def publish(
        self,
        message: Message[M],
        body: M,
        *,
        key: str,
        subject: str,
        actor: str,
        id: str,  # noqa: A002 - the attribute's name in CloudEvents
    ) -> None:
        """Publish and wait until the stream has it; UnreachableError when it does not take it."""
        try:
            await self.client.publish(message, body, key=key, subject=subject, actor=actor, id=id)
        except (TimeoutError, OSError, BusError, NatsError) as error:
            words = str(error) or type(error).__name__
            msg = f"stream {message.stream.name} did not take the {message.id} message ({words}): `farside status`"
            raise UnreachableError(msg) from None

    async def next_sequence(self, message: Message[Any]) -> int:
        """The stream sequence that the next message of this stream will have: where to begin to listen."""
        try:
            return (await self.client.js.stream_info(message.stream.name)).state.last_seq + 1
        except (NatsError, TimeoutError) as error:
            msg = f"stream {message.stream.name} cannot be read ({error!r}): `farside provision` makes it"
            raise UnreachableError(msg) from None

    async def first(
        self,
        messages: Sequence[Message[Any]],
        key: str,
        since: int,
        wanted: Callable[[Event[Any]], bool],
        timeout_s: float,
    ) -> Event[Any] | None:
        """The first event from stream sequence `since` on that is `wanted`, or None after `timeout_s`."""
        try:
            async with (
                asyncio.timeout(timeout_s),
                aclosing(self.client.events(messages, key=key, since=since)) as events,
            ):
                async for event in events:
                    if wanted(event):
                        return event
        except TimeoutError:
            pass
        return None

    async def job(self, name: str, tenant: str = NO_KEY) -> JobReply:
        """Find a job by id, by unique prefix of its id, or by name."""
        return await self.ask(registry.QUERY_JOB, JobQuery(job=name), key=tenant)

    async def job_state(self, name: str, tenant: str = NO_KEY) -> JobState:
        """The job alone."""
        return (await self.job(name, tenant)).job

    @asynccontextmanager
    async def store(self) -> AsyncGenerator[AsyncStore]:
        """The object store; its errors come out as words: UnreachableError when it does not answer, else CliError."""
        store = AsyncStore.open(self.place.settings)
        try:
            yield store
        except ObjectsError as error:
            msg = f"object storage at {self.place.settings.s3_endpoint}: {error}"
            raise (UnreachableError if isinstance(error, UnavailableError) else CliError)(msg) from None
        finally:
            await store.close()


@asynccontextmanager
async def connected(stack: Path | None) -> AsyncGenerator[Session]:
    """Find the stack and connect to its bus."""
    place = locate(stack)
    settings = place.settings
    try:
        client = await asyncio.wait_for(
            Client.connect(settings.nats_url, name="cli", api=settings.js_api, creds=settings.nats_creds),
            CONNECT_TIMEOUT_S,
        )
    except (OSError, TimeoutError, BusError, NatsError) as error:
        address = settings.nats_url.rpartition("@")[2].removeprefix("nats://")
        words = str(error) or type(error).__name__
        msg = f"no bus at {address} (from {place.source}): {words}; is the stack up? `farside status`"
        raise UnreachableError(msg) from None
    from libs.telemetry.process import telemetry

    try:
        with telemetry("cli", _traced(place)):
            yield Session(place, client)
    finally:
        await client.close()


def _traced(place: Place) -> ServiceSettings:
    """Settings by which a command leaves its spans beside those of its stack, where that keeps any. No metrics."""
    settings = place.settings
    folder = settings.trace_dir or (None if place.directory is None else place.directory / TRACES)
    kept = folder is not None and folder.is_dir() and os.access(folder, os.W_OK)
    return settings.model_copy(update={"trace_dir": folder if kept else None, "metrics_port": None})


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine, its logs quiet; ctrl-C leaves with status 130 and no traceback."""
    logs.configure("cli", os.environ.get("FARSIDE_LOG_LEVEL", QUIET))
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
