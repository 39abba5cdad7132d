"""End every attempt of a node, whether an agent runs there or not.

In: the agent's folders. Out: no process of any attempt; each shim has written down that it was stopped, and the next
agent tells the scheduler.
"""

import signal
import time
from pathlib import Path

from services.agent import handoff, proctree
from services.agent.executor import Alive, Executor, Vanished
from services.agent.handoff import Stop

KILL_AFTER_S = 5.0
LOOK_S = 0.05


def end_attempts(attempts: Path, executor: Executor, grace_s: float) -> int:
    """Stop all; blocks for `grace_s` and some seconds at most. The number of attempts that were alive."""
    folders = [path for path in attempts.glob("*/*") if path.is_dir()]
    alive = [folder for folder in folders if isinstance(executor.look(folder), Alive)]
    order = Stop("stopped", grace_s, proctree.boottime(), "the node is shut down")
    for folder in alive:
        executor.stop(folder, order)
    give_up_at = proctree.boottime() + grace_s + KILL_AFTER_S
    left = alive
    while left and proctree.boottime() < give_up_at:
        time.sleep(LOOK_S)
        left = [folder for folder in left if isinstance(executor.look(folder), Alive)]
    for folder in left:
        owner = handoff.read_owner(folder)
        if owner is not None and owner.shim is not None:
            owner.shim.signal(signal.SIGKILL)
    for folder in folders:
        if isinstance(executor.look(folder), Vanished):
            executor.sweep(folder)
    return len(alive)
