"""A task that loses its cancellation is ended all the same."""

import asyncio
import contextlib

import pytest

from libs.kit import tasks


async def test_a_lost_cancellation_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.01)
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    async def failing() -> None:
        text = "dropped"
        raise ValueError(text)

    running = [asyncio.create_task(stubborn()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await asyncio.wait_for(tasks.reap(running), 5)
    assert lost == 3
    assert all(task.done() for task in running)


async def test_nothing_to_end_is_no_wait() -> None:
    await tasks.reap([])
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    await tasks.reap([done])
    with contextlib.suppress(asyncio.CancelledError):
        await done
