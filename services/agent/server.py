"""The agent's side of an attempt's Unix socket: newline JSON, one bounded line a request, answered in order.

In: requests of the task, checked here. Out: what the attempt's desk answers. The words are `libs.sdk.protocol`'s.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from contracts.attempts import ProgressPoint
from contracts.base import Count, Sha256
from libs.bus.codec import has_nul
from libs.kit.logs import get_logger
from libs.sdk.protocol import MAX_LINE_BYTES
from services.agent.errors import TaskRequestError

MAX_CONNECTIONS = 32
MAX_POINTS_PER_LINE = 4096
SAVES_WAIT_MOST_S = 30.0
FILE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


class _Op(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AttachOp(_Op):
    """Ask for the job's facts."""

    op: Literal["attach"]


class PointIn(ProgressPoint):
    """A point with its serial."""

    serial: Count


class ProgressOp(_Op):
    """Hand points over; with `flush` they are sent on at once."""

    op: Literal["progress"]
    points: Annotated[list[PointIn], Field(max_length=MAX_POINTS_PER_LINE)]
    flush: bool = False


class SaveOp(_Op):
    """Hand a checkpoint file over; `file` is its name in the folder that `attach` told."""

    op: Literal["save"]
    step: Count
    file: Annotated[str, Field(pattern=FILE_PATTERN)]
    sha256: Sha256
    size_bytes: Count
    stall_ms: Count
    write_ms: Count


class SavesOp(_Op):
    """Ask how saves stand, waiting up to `wait_s` for none to be pending."""

    op: Literal["saves"]
    wait_s: Annotated[float, Field(ge=0, le=SAVES_WAIT_MOST_S)] = 0.0


class ReadyOp(_Op):
    """Say that the task serves."""

    op: Literal["ready"]
    endpoint: Annotated[str, Field(min_length=1, max_length=1024)]


Op: TypeAlias = AttachOp | ProgressOp | SaveOp | SavesOp | ReadyOp
_OPS: TypeAdapter[Op] = TypeAdapter(Annotated[Op, Field(discriminator="op")])


class SocketServer:
    """Listens at one path for one attempt."""

    def __init__(self, path: Path, answer: Callable[[Op], Awaitable[dict[str, Any]]]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; a socket left by an earlier agent is replaced."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=MAX_LINE_BYTES)
        self._path.chmod(0o600)

    async def close(self) -> None:
        """Stop listening and end every connection. The path stays: the next agent may listen there by now."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        self._open.add(task)
        try:
            if len(self._open) > MAX_CONNECTIONS:
                await _send(writer, _refusal(f"more than {MAX_CONNECTIONS} connections: close some"))
                return
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                await _send(writer, _refusal(f"the line has more than {MAX_LINE_BYTES} bytes: send less at a time"))
                return
            await _send(writer, await self._reply(line))

    async def _reply(self, line: bytes) -> dict[str, Any]:
        if has_nul(line.decode("utf-8", "replace")):
            return _refusal("request: a string holds the character NUL, which no message may: leave it out")
        try:
            op = _OPS.validate_json(line)
            return {"ok": True, **await self._answer(op)}
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            return _refusal(f"{where or 'request'}: {first['msg']}")
        except TaskRequestError as error:
            return _refusal(str(error))
        except Exception:
            get_logger().exception("socket.failed", socket=str(self._path))
            raise


def _refusal(words: str) -> dict[str, Any]:
    return {"ok": False, "error": words}


async def _send(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    writer.write(json.dumps(reply).encode() + b"\n")
    await writer.drain()
