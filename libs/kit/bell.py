"""A bell for background loops: rung by whoever has made work, and heard after a while in any case."""

import asyncio


class Bell:
    """Quiet the bell, look for work, and wait when there was none: what is made meanwhile rings again."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There may be work."""
        self._rung.set()

    def quiet(self) -> None:
        """Forget earlier rings; call it before looking for work."""
        self._rung.clear()

    async def wait(self, at_most_s: float) -> None:
        """Return at a ring, at once when there was one since `quiet`, or after `at_most_s`."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._rung.wait()
        except TimeoutError:
            return
