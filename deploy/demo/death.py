"""Kill a node as a power cut would: agent, shims and tasks at once, by SIGKILL, and keep it down."""

import signal

from deploy.local import leftovers
from deploy.local.identity import identity
from deploy.local.stack import Stack

ROUNDS = 5


def kill_node(stack: Stack, node: str) -> int:
    """Kill every process of the node; returns how many died.

    In rounds, because a task may have forked between the look and the blow.
    """
    stack.hold(node)
    victims = [identity(stack.pid(node))]
    died = 0
    for _ in range(ROUNDS):
        found = leftovers.find(stack.directory, node)
        victims += [*found.shims, *found.tasks]
        if not victims:
            break
        for victim in victims:
            victim.signal(signal.SIGKILL)
        died += len(victims)
        victims = []
    return died


def task_log(stack: Stack, node: str, job_id: str, attempt: int) -> bytes:
    """What member 0 of the attempt had written to its node's disk."""
    folder = stack.config.node_dir(node) / "attempts" / job_id / f"{attempt}-0" / "log"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
