"""A network link that can be cut: a TCP proxy between the leaf node and the hub."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Link:
    """Listens on a loopback port and passes bytes on to `target`, until it is cut; mended, it takes connections again.

    A cut connection is not closed but goes silent, as a link to a remote site does.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._pipes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._end()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Pass nothing on, in either direction."""
        self._open.clear()

    async def mend(self) -> None:
        """Pass on again. Connections from before the cut have lost nothing: what was sent meanwhile now arrives."""
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        try:
            await self._open.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._pipes.discard(task)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()

    async def _end(self) -> None:
        for task in self._pipes:
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
