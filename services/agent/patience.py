"""Questions that may never be answered: a driver whose card is dying may hang in a call for minutes.

In: a function that blocks. Out: what it returns, or TimeoutError. It runs on a thread that the process does not wait
for at its end, and while one hangs no other is begun.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Patience(Generic[T]):
    """Asks one question at a time."""

    def __init__(self, name: str, limit_s: float) -> None:
        self._name = name
        self._limit_s = limit_s
        self._thread: threading.Thread | None = None

    async def ask(self, question: Callable[[], T]) -> T:
        """Raises what `question` raises, and TimeoutError without an answer in time or while the one before hangs."""
        if self._thread is not None and self._thread.is_alive():
            raise TimeoutError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                found = question()
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                _tell(loop, answer, lambda error=error: answer.set_exception(error))
            else:
                _tell(loop, answer, lambda: answer.set_result(found))

        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()
        async with asyncio.timeout(self._limit_s):
            return await answer


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], say: Callable[[], None]) -> None:
    def on_loop() -> None:
        if not answer.done():
            say()

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(on_loop)
