"""A TCP proxy on the loopback through which a link can be cut, hung and healed."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 * 1024


class Proxy:
    """Forwards `port` to `target`; `cut` drops and refuses connections, `hang` keeps them but moves nothing."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._open = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Drop every connection and accept none."""
        self._open = False
        for writer in list(self._writers):
            writer.transport.abort()

    def hang(self) -> None:
        """Move no more bytes, in either direction, and keep the connections."""
        self._flowing.clear()

    def hang_back(self) -> None:
        """Move bytes to the target only: what is asked arrives, no answer does."""
        self._answering.clear()

    def heal(self) -> None:
        """Work again."""
        self._open = True
        self._flowing.set()
        self._answering.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        for source, sink, gate in ((reader, far_writer, self._flowing), (far_reader, writer, self._answering)):
            task = asyncio.create_task(self._pump(source, sink, gate, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        gate: asyncio.Event,
        pair: set[asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                await self._flowing.wait()
                await gate.wait()
                sink.write(chunk)
                await sink.drain()
        for writer in pair:
            writer.transport.abort()
        self._writers -= pair
