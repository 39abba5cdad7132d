"""The attempt's socket: bounded lines, answers in order, refusals in words."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.sdk.protocol import MAX_LINE_BYTES
from services.agent.errors import TaskRequestError
from services.agent.server import MAX_CONNECTIONS, Op, ProgressOp, ReadyOp, SavesOp, SocketServer

ASKED: list[Op] = []


async def answer(op: Op) -> dict[str, Any]:
    ASKED.append(op)
    match op:
        case ReadyOp():
            msg = "no such endpoint"
            raise TaskRequestError(msg)
        case SavesOp():
            msg = "a fault of the agent's own"
            raise RuntimeError(msg)
        case ProgressOp(points=points):
            return {"serial": len(points)}
        case _:
            return {}


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    ASKED.clear()
    server = SocketServer(tmp_path / "s", answer)
    await server.start()
    yield tmp_path / "s"
    await server.close()


async def ask(path: Path, *lines: bytes) -> list[dict[str, Any]]:
    """Send lines on one connection; all replies until it ends or each has one."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2 * MAX_LINE_BYTES)
    try:
        writer.write(b"".join(line + b"\n" for line in lines))
        await writer.drain()
        replies: list[dict[str, Any]] = []
        for _ in lines:
            line = await reader.readline()
            if not line:
                break
            replies.append(json.loads(line))
        return replies
    finally:
        writer.close()


async def test_answers_come_in_order(path: Path) -> None:
    point = {"serial": 1, "step": 4, "metrics": {"loss": 0.5}}
    lines = [json.dumps({"op": "progress", "points": [point] * n}).encode() for n in range(3)]
    assert [reply["serial"] for reply in await ask(path, *lines)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "JSON"),
        (b"not json", "JSON"),
        (b"\xff\xfe", ""),
        (b"[]", ""),
        (b"{}", "op"),
        (b'{"op": "fly"}', "fly"),
        (b'{"op": "save", "step": -1, "file": "f", "sha256": "0", "size_bytes": 1}', "save.step"),
        (b'{"op": "progress", "points": [{"serial": 1, "step": 1, "metrics": {"loss": NaN}}]}', "progress.points"),
        (b'{"op": "ready", "endpoint": "h:1"}', "no such endpoint"),
        (b'{"op": "ready", "endpoint": "h\\u0000:1"}', "NUL"),
    ],
)
async def test_a_bad_request_is_refused_and_the_next_is_answered(path: Path, line: bytes, words: str) -> None:
    bad, good = await ask(path, line, b'{"op": "attach"}')
    assert bad["ok"] is False
    assert words in bad["error"]
    assert good == {"ok": True}


@pytest.mark.parametrize("file", ["../x", "/etc/passwd", "a/b", ".hidden", ""])
async def test_a_file_outside_the_folder_cannot_be_named(path: Path, file: str) -> None:
    save = {"op": "save", "step": 1, "file": file, "sha256": "0" * 64, "size_bytes": 1, "stall_ms": 0, "write_ms": 0}
    (reply,) = await ask(path, json.dumps(save).encode())
    assert "save.file" in reply["error"]
    assert not ASKED


async def test_a_line_without_end_is_cut_off(path: Path) -> None:
    (reply,) = await ask(path, b"x" * (MAX_LINE_BYTES + 100))
    assert "send less at a time" in reply["error"]
    assert (await ask(path, b'{"op": "attach"}'))[0]["ok"]


async def test_a_fault_of_the_agent_ends_the_connection_and_not_the_server(path: Path) -> None:
    assert await ask(path, b'{"op": "saves"}') == []
    assert (await ask(path, b'{"op": "attach"}'))[0]["ok"]


async def test_too_many_connections_are_turned_away(path: Path) -> None:
    held = [await asyncio.open_unix_connection(path) for _ in range(MAX_CONNECTIONS)]
    (reply,) = await ask(path, b'{"op": "attach"}')
    assert "connections" in reply["error"]
    for _, writer in held:
        writer.close()
