"""One POST to a webhook, bounded in time and in what is read of the answer; redirects are not followed."""

import asyncio
import contextlib
import http.client
import socket
from urllib.parse import urlsplit

from services.alerting.core.delivery import Answered, Unanswered

READ_BYTES_LIMIT = 4096


async def post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Answered | Unanswered:
    """Send `body`; what came of it, within `timeout_s`. The words name no part of the URL but the host."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    place = f"{connection.host}:{connection.port}"
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(_exchange, connection, target, body, headers)
    except TimeoutError:
        return Unanswered(f"{place} did not answer within {timeout_s:g} s")
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a host that no resolver takes
        return Unanswered(f"{place} cannot be reached: {type(error).__name__} {error}".rstrip())
    finally:
        _abandon(connection)


def _exchange(connection: http.client.HTTPConnection, target: str, body: bytes, headers: dict[str, str]) -> Answered:
    """In a thread of its own."""
    try:
        connection.request("POST", target, body, headers)
        response = connection.getresponse()
        return Answered(response.status, response.read1(READ_BYTES_LIMIT).decode(errors="replace"))
    finally:
        connection.close()


def _abandon(connection: http.client.HTTPConnection) -> None:
    """Wake a thread that still waits for an answer which comes drop by drop."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
