"""`farside demo`: tell the story on standard error, draw the picture, report, clean up."""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from deploy.demo.accounts import HEARTBEAT_S, PERIOD_S
from deploy.demo.findings import Findings, failures, report
from deploy.demo.plot import Picture, draw
from deploy.demo.proxy import StoreProxy
from deploy.demo.story import Scene, play
from deploy.demo.watcher import StoryError, Watcher
from deploy.local.errors import StackError
from deploy.local.ports import free_port
from deploy.local.stack import Stack
from libs.cli import output
from libs.cli import picture as picture_file
from libs.cli.errors import FileError
from libs.cli.manual import Manual
from libs.cli.session import connected
from libs.kit import logs

# A real fleet counts leases in minutes; the order of events is the same when all times shrink together.
TIMINGS = {
    "FARSIDE_HEARTBEAT_S": str(HEARTBEAT_S),
    "FARSIDE_SUSPECT_S": "2.5",
    "FARSIDE_LEASE_S": "6",
    "FARSIDE_LOST_S": "8",
    "FARSIDE_USAGE_PERIOD_S": str(PERIOD_S),
    "FARSIDE_METERING_RECONCILE_S": "1",
}
LIMIT_S = 400.0
INTERRUPTED = 130
DEFAULT_PLOT = Path("farside-demo.png")


@click.command(cls=Manual)
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    callback=picture_file.checked,
    default=DEFAULT_PLOT,
    show_default=True,
    help="Where the picture of the loss curve goes.",
)
@click.option(
    "--dir",
    "keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Use this folder for all state and logs and leave it behind, instead of a temporary one.",
)
def demo(plot: Path, keep: Path | None, *, as_json: bool) -> None:
    """Watch a training job survive the death of its node.

    On a stack of its own, with leases of seconds instead of minutes: four jobs are submitted by a plain publisher.
    Training on 1,797 handwritten digits lands on a central node, inference and batch on remote ones, and a job beyond
    its tenant's quota is refused with the figures. After the second checkpoint the training node is killed by SIGKILL:
    agent, shim and task. It is declared lost by its lease, the job goes on from its newest checkpoint on the other
    central node, and its losses are compared with those of a run that nobody disturbed. On the way the object store
    refuses one checkpoint, which raises an alarm and is stored by itself. In the end the dead node is repaired, what
    the jobs held is compared with what was measured, billed, computed anew by other code, and the job's one trace is
    followed through all services. Everything is told on standard error while it happens, and cleaned up whatever
    happens.

    Examples:
      farside demo
      farside demo --json --plot loss.png
      farside demo --dir demo-1     # then look into demo-1/stack/logs

    Exit status: 0 all of it held; 1 something did not, and is named.

    """
    began = time.monotonic()
    if keep is not None and keep.exists() and any(keep.iterdir()):
        msg = f"--dir {keep} is not empty: name a new folder, the story begins with an empty stack"
        raise FileError(msg)
    found = Findings()
    try:
        picture = asyncio.run(
            _demo(found, keep, lambda line: output.note(f"{time.monotonic() - began:6.1f} s  {line}"))
        )
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.note("interrupted; everything is cleaned up")
        raise SystemExit(INTERRUPTED) from None
    if picture is not None:
        _draw(picture, plot)
    _finish(found, time.monotonic() - began, as_json=as_json)


def _draw(picture: Picture, plot: Path) -> None:
    """A picture that cannot be written takes nothing from what the demo has found."""
    try:
        draw(picture, plot)
    except FileError as error:
        output.note(error.message)
    else:
        output.note(f"the loss curve is in {plot}")


def _finish(found: Findings, seconds: float, *, as_json: bool) -> None:
    broken = failures(found)
    for words in broken:
        output.note(f"not so: {words}")
    if not broken:
        output.note(f"ok: all of it held, in {seconds:.0f} s")
    if as_json:
        output.as_json_line(report(found, seconds))
    sys.exit(1 if broken else 0)


async def _demo(found: Findings, keep: Path | None, say: Callable[[str], None]) -> Picture | None:
    """The story on a stack in a folder of its own; what goes wrong is put into the findings."""
    logs.configure("demo", "error")
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    folder = keep or Path(tempfile.mkdtemp(prefix="farside-demo-"))
    try:
        return await asyncio.wait_for(_story(folder, found, say), LIMIT_S)
    except TimeoutError:
        found.error = f"the demo was not done after {LIMIT_S:.0f} s"
    except click.ClickException as error:
        found.error = error.message
    except (StoryError, StackError) as error:
        found.error = str(error)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return None


async def _story(folder: Path, found: Findings, say: Callable[[str], None]) -> Picture:
    directory, store_port = folder / "stack", free_port()
    proxy = StoreProxy(store_port)
    env = {**TIMINGS, "FARSIDE_S3_ENDPOINT": proxy.endpoint}
    with proxy:
        async with (
            Stack(directory, env=env, ports={"s3": store_port}, say=say) as stack,
            connected(directory) as session,
            Watcher(session.client, say) as watcher,
        ):
            say("everything is up; the fleet as inventory lists it:")
            picture = await play(Scene(stack, proxy, session, watcher, folder, found, say))
            say("taking everything down")
            return picture
