"""`python -m services.agent`: run the agent of one node.

`--check` only reads the settings; `--end-attempts` ends every attempt of the node, with or without an agent.
"""

import asyncio
import sys

from libs.kit import logs
from libs.kit.start import read_settings, settle_memory
from services.agent.ending import end_attempts
from services.agent.places import Places
from services.agent.service import SERVICE, SHUTDOWN_GRACE_S, build, executor_of
from services.agent.settings import AgentSettings


def main(arguments: list[str]) -> int:
    """Read the settings and do what the arguments say."""
    settings = read_settings(SERVICE, AgentSettings)
    logs.configure(SERVICE, settings.log_level, node=settings.node)
    if "--check" in arguments:
        return 0
    if "--end-attempts" in arguments:
        ended = end_attempts(Places(settings).attempts, executor_of(settings), SHUTDOWN_GRACE_S)
        logs.get_logger().info("attempts.ended", node=settings.node, attempts=ended)
        return 0
    settle_memory()
    asyncio.run(build(settings).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
