"""`AsyncStore`: a `Store` for coroutines, its calls on a few threads of its own.

The threads are daemons: a store that hangs must not keep a process from ending when it is told to.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from libs.kit.ids import new_id
from libs.kit.logs import get_logger
from libs.objects.errors import UnavailableError
from libs.objects.model import Created, Digest, Exists, Head, Listed, S3Settings, Version
from libs.objects.store import Store

T = TypeVar("T")
V = TypeVar("V")

THREADS = 8


class AsyncStore:
    """The same calls as `Store`, awaited; at most THREADS run at a time, the rest wait."""

    def __init__(self, store: Store) -> None:
        """Take over `store`; `close` closes it."""
        self.blocking = store
        self._slots = asyncio.Semaphore(THREADS)

    @classmethod
    def open(cls, settings: S3Settings) -> Self:
        """The store of a service's settings."""
        return cls(Store.open(settings))

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self.blocking.bucket

    def uri(self, key: str) -> str:
        """See Store.uri."""
        return self.blocking.uri(key)

    def key(self, uri: str) -> str:
        """See Store.key."""
        return self.blocking.key(uri)

    async def put(self, key: str, data: bytes | Path, sha256: str | None = None, *, verify: bool = True) -> Digest:
        """See Store.put."""
        return await self._call(partial(self.blocking.put, key, data, sha256, verify=verify))

    async def put_if_absent(self, key: str, data: bytes) -> Created | Exists:
        """See Store.put_if_absent."""
        return await self._call(partial(self.blocking.put_if_absent, key, data))

    async def get(self, key: str) -> bytes:
        """See Store.get."""
        return await self._call(partial(self.blocking.get, key))

    async def get_version(self, key: str) -> Version:
        """See Store.get_version."""
        return await self._call(partial(self.blocking.get_version, key))

    async def delete_version(self, key: str, etag: str) -> bool:
        """See Store.delete_version."""
        return await self._call(partial(self.blocking.delete_version, key, etag))

    async def get_to(self, key: str, path: Path, sha256: str | None = None) -> Digest:
        """See Store.get_to."""
        return await self._call(partial(self.blocking.get_to, key, path, sha256))

    async def digest(self, key: str) -> Digest:
        """See Store.digest."""
        return await self._call(partial(self.blocking.digest, key))

    async def head(self, key: str) -> Head:
        """See Store.head."""
        return await self._call(partial(self.blocking.head, key))

    async def list(self, prefix: str) -> list[Listed]:
        """See Store.list."""
        return await self._call(partial(self.blocking.list, prefix))

    async def delete(self, object_keys: Sequence[str]) -> None:
        """See Store.delete."""
        await self._call(partial(self.blocking.delete, object_keys))

    async def copy(self, source: str, target: str, size_bytes: int) -> None:
        """See Store.copy."""
        await self._call(partial(self.blocking.copy, source, target, size_bytes))

    async def abort_uploads(self, prefix: str, before: datetime) -> int:
        """See Store.abort_uploads."""
        return await self._call(partial(self.blocking.abort_uploads, prefix, before))

    async def wait_ready(self, probe_key: str, timeout_s: float) -> None:
        """See Store.wait_ready."""
        await self._call(partial(self.blocking.wait_ready, probe_key, timeout_s))

    async def admit(self, probe_prefix: str, wait_s: float) -> None:
        """Wait for a store that is fit for use, for as long as it is away; a log line every `wait_s` tells so.

        Raises DamagedError or RefusedError for a store not to be trusted; see Store.wait_ready.
        """
        while True:
            try:
                await self.wait_ready(f"{probe_prefix}/{new_id()}", wait_s)
            except UnavailableError as error:
                get_logger().error("store.away", error=str(error))
            else:
                return

    async def close(self) -> None:
        """Close connections; calls that still run fail."""
        self.blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, function: Callable[[], T]) -> T:
        async with self._slots:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[T] = loop.create_future()
            threading.Thread(target=_run, args=(function, loop, answer), name="objects", daemon=True).start()
            return await answer


def _run(function: Callable[[], T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
    """Call in this thread, answer in the loop's; nobody may be waiting any more."""
    try:
        result = function()
    except Exception as error:  # noqa: BLE001 - it is raised again where the answer is awaited
        settle: Callable[[], None] = partial(_settle, answer.set_exception, answer, error)
    else:
        settle = partial(_settle, answer.set_result, answer, result)
    with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
        loop.call_soon_threadsafe(settle)


def _settle(settle: Callable[[V], None], answer: asyncio.Future[T], value: V) -> None:
    if not answer.done():
        settle(value)
