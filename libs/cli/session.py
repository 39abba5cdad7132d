"""One command's hold on the stack: the bus client, the object store, and errors turned into words."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
P = TypeVar("P", bound="Page")

MAX_PAGES = 100_000
REQUEST_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 10.0
POLL_S = 0.1
INTERRUPTED = 130
QUIET = "error"
TRACES = "traces"


class Page(Protocol):
    """A reply that goes on at `cursor`."""

    @property
    def cursor(self) -> str | None:
        """Where the next page begins."""
        ...


async def pages(ask: Callable[[str | None], Awaitable[P]]) -> AsyncIterator[P]:
    """The pages of a query; `ask` gets one by the cursor of the page before."""
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            break


async def every(ask: Callable[[str | None], Awaitable[P]], items: Callable[[P], Iterable[T]]) -> list[T]:
    """What all pages of a query hold together."""
    return [item async for page in pages(ask) for item in items(page)]


@dataclass(frozen=True)
class Session:
    """A connected command."""

    place: Place
    client: Client

    @property
    def tenant(self) -> str | None:
        """The tenant as whose user this command is connected; None for the operator."""
        return self.place.tenant

    def for_operator(self, what: str) -> None:
        """Raises CliError where the bus gives `what` to the operator alone."""
        if self.tenant is not None:
            msg = f"{what} is the operator's, and this is tenant {self.tenant} (from {self.place.source}): ask there"
            raise CliError(msg)

    def _of_tenant(self, key: str) -> None:
        """Raises CliError for the key of another tenant than the one that is connected."""
        if self.tenant not in {None, key}:
            whose = "all tenants" if key == NO_KEY else f"tenant {key}"
            msg = f"tenant {self.tenant} may not speak for {whose}: give --tenant {self.tenant}, or none"
            raise CliError(msg)

    async def ask(self, request: Request[M, R], body: M, key: str = NO_KEY) -> R:
        """Send a request; CliError with the service's own words, UnreachableError when nothing answers."""
        if registry.TENANT not in request.callers:
            self.for_operator(request.id)
        self._of_tenant(key)
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
        self._of_tenant(key)
        try:
            await self.client.publish(message, body, key=key, subject=subject, actor=actor, id=id)
        except (TimeoutError, OSError, BusError, NatsError) as error:
            words = str(error) or type(error).__name__
            msg = f"stream {message.stream.name} did not take the {message.id} message ({words}): `farside status`"
            raise UnreachableError(msg) from None

    async def next_sequence(self, message: Message[Any]) -> int:
        """The stream sequence that the next message of this stream will have: where to begin to listen.

        Of no use to a tenant, who reads the newest event of each kind and no stream; see `first`.
        """
        if self.tenant is not None:
            return 0
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
        """The first event from stream sequence `since` on that is `wanted`, or None after `timeout_s`.

        For a tenant the newest of each kind that is `wanted`: one that another follows at once is not seen.
        """
        if self.tenant is not None:
            return await self._newest(messages, key, wanted, timeout_s)
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

    async def _newest(
        self, messages: Sequence[Message[Any]], key: str, wanted: Callable[[Event[Any]], bool], timeout_s: float
    ) -> Event[Any] | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    for message in messages:
                        event = await self.client.last(message, key=key)
                        if event is not None and wanted(event):
                            return event
                    await asyncio.sleep(POLL_S)
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
            Client.connect(settings.nats_url, name="cli", api=place.api, creds=settings.nats_creds),
            CONNECT_TIMEOUT_S,
        )
    except (OSError, TimeoutError, BusError, NatsError) as error:
        address = settings.nats_url.rpartition("@")[2].removeprefix("nats://")
        words = str(error) or type(error).__name__
        msg = f"no bus at {address} (from {place.source}): {words}; is it up, and is this user known there?"
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
