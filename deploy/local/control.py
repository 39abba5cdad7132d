"""How tools speak with a running supervisor: one JSON object a line over a Unix socket, a request and its reply.

Requests: `{"do": "status"}`, `{"do": "stop"}`, and `hold`, `release`, `stop_part` with `"part": NAME`. Replies:
`{"ok": true, ...}` or `{"ok": false, "error": WORDS}`.
"""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from deploy.local.config import CONTROL_SOCKET, read_stack_file
from deploy.local.errors import StackError
from deploy.local.identity import Identity

LINE_BYTES = 1024 * 1024
REPLY_S = 30.0

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def serve(path: Path, answer: Answer) -> asyncio.Server:
    """Answer requests at `path`, which must not exist; its folder is closed to other users."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REPLY_S):
                reply = await _reply(await reader.readline(), answer)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the asker has gone, or never asked
        finally:
            writer.close()

    return await asyncio.start_unix_server(talk, path, limit=LINE_BYTES)


async def _reply(line: bytes, answer: Answer) -> dict[str, Any]:
    try:
        return {"ok": True, **await answer(json.loads(line))}
    except StackError as error:
        return {"ok": False, "error": str(error)}


def supervisor(directory: Path) -> Identity | None:
    """The supervisor of the stack in `directory`, if one runs. StackError when there is no stack at all."""
    entry: dict[str, Any] | None = read_stack_file(directory).get("supervisor")
    if entry is None:
        return None
    who = Identity(int(entry["pid"]), float(entry["start_time"]))
    return who if who.alive() else None


def ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request to the supervisor of the stack in `directory` and return its reply.

    Raises StackError when the stack is down, does not answer, or says no.
    """
    path = Path(read_stack_file(directory)["run_dir"]) / CONTROL_SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(REPLY_S)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as file:
                line = file.readline(LINE_BYTES)
    except OSError as error:
        msg = f"the stack in {directory} is down ({error.strerror or error}): `farside up --dir {directory}` starts it"
        raise StackError(msg) from None
    reply: dict[str, Any] = json.loads(line) if line else {"ok": False, "error": "the supervisor gave no answer"}
    if not reply.pop("ok"):
        raise StackError(str(reply["error"]))
    return reply
