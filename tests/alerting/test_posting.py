"""One POST against receivers that misbehave: it ends in time, reads little, and follows nobody."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from deploy.local.ports import free_port
from services.alerting.core.delivery import Answered, Unanswered
from services.alerting.posting import READ_BYTES_LIMIT, post
from tests.waiting import until

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD_END = b"\r\n\r\n"
DRIP_S = 0.05


@asynccontextmanager
async def _serving(serve: Serve) -> AsyncGenerator[str]:
    """A server that speaks to each connection as told; its URL."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(HEAD_END)
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


async def _post(url: str, timeout_s: float = 5) -> Answered | Unanswered:
    return await post(url, b"{}", {"Content-Type": "application/json"}, timeout_s)


async def test_an_answer_that_comes_drop_by_drop_is_left_in_time() -> None:
    left = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(DRIP_S)
        except OSError:
            left.set()

    async with _serving(drip) as url:
        answer = await _post(url, timeout_s=0.5)
        assert isinstance(answer, Unanswered)
        assert answer.why.endswith("did not answer within 0.5 s")
        await until(left.is_set, 5, "the connection to be dropped")


async def test_of_a_long_answer_only_the_beginning_is_read() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 1_000_000)
        await writer.drain()

    async with _serving(flood) as url:
        answer = await _post(url)
    assert isinstance(answer, Answered)
    assert answer.status == 500
    assert 0 < len(answer.text) <= READ_BYTES_LIMIT


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with _serving(redirect) as url:
        assert await _post(url) == Answered(302)


async def test_what_is_no_http_and_what_is_cut_off_is_no_answer() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(b"220 smtp.example ESMTP\r\n")
        await writer.drain()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader, writer

    for serve in (babble, hang_up):
        async with _serving(serve) as url:
            answer = await _post(url)
        assert isinstance(answer, Unanswered)
        assert "cannot be reached: " in answer.why


async def test_a_host_that_does_not_answer_or_cannot_be_is_named_without_the_path() -> None:
    port = free_port()
    refused = await _post(f"http://127.0.0.1:{port}/s3cret?key=s3cret")
    assert isinstance(refused, Unanswered)
    assert refused.why.startswith(f"127.0.0.1:{port} cannot be reached: ConnectionRefusedError")
    impossible = await _post(f"http://{'a' * 70}..b/s3cret")
    assert isinstance(impossible, Unanswered)
    assert "s3cret" not in refused.why + impossible.why
