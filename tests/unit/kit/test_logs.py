"""Lines written in a transaction tell what has come to be, or say that it has not."""

import asyncio
import errno
import io
import json
from collections.abc import Iterator

import pytest
import structlog

from libs.kit.logs import configure, get_logger, held


@pytest.fixture(autouse=True)
def configured() -> Iterator[None]:
    configure("probe")
    yield
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, bool]]:
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [(line["event"], line.get("rolled_back", False)) for line in found]


def test_lines_come_when_the_block_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with held():
        get_logger().info("job.moved", job="one")
        assert lines(capsys) == []
    assert lines(capsys) == [("job.moved", False)]


def test_lines_of_a_block_that_failed_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with held():
            get_logger().info("job.moved", job="one")
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail()
    get_logger().info("job.tried_again")
    assert lines(capsys) == [("job.moved", True), ("job.tried_again", False)]


async def test_a_task_begun_in_the_block_speaks_for_itself_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    go = asyncio.Event()

    async def later() -> None:
        await go.wait()
        get_logger().info("task.done")

    with held():
        task = asyncio.create_task(later())
    go.set()
    await task
    assert lines(capsys) == [("task.done", False)]


async def test_blocks_at_once_keep_their_lines_apart(capsys: pytest.CaptureFixture[str]) -> None:
    go = asyncio.Event()

    async def slow() -> None:
        with held():
            get_logger().info("slow")
            await go.wait()

    task = asyncio.create_task(slow())
    await asyncio.sleep(0)
    with held():
        get_logger().info("quick")
    assert lines(capsys) == [("quick", False)]
    go.set()
    await task
    assert lines(capsys) == [("slow", False)]


class _Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, line: str, /) -> int:
        raise OSError(errno.ENOSPC, f"no room for {len(line)} characters")


def test_a_line_that_nobody_takes_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as full:
        full.setattr("sys.stderr", _Full())
        for say in (get_logger().debug, get_logger().info, get_logger().warning, get_logger().error):
            say("lost")
        with held():
            get_logger().info("lost too")
    get_logger().info("room again")
    assert lines(capsys) == [("room again", False)]
