"""What an agent takes from the bus: offers and stops. Each is one transaction of inbox, journal row and outbox."""

import sqlite3

from contracts import registry
from contracts.attempts import ExitCause
from contracts.work import WorkRun, WorkStop
from libs.bus import App, Event, Refused, Tx
from services.agent.agent import Agent
from services.agent.core.model import AttemptKey, Offered, StopAsked, StopOrder
from services.agent.journal import Journal
from services.agent.ports import Ports


class Handlers:
    """The agent's message handlers."""

    def __init__(self, journal: Journal, ports: Ports, agent: Agent) -> None:
        self._journal = journal
        self._ports = ports
        self._agent = agent

    def register(self, app: App[sqlite3.Connection]) -> None:
        """Take the node's messages."""
        app.on(registry.WORK_RUN, self.run)
        app.on(registry.WORK_STOP, self.stop)

    async def run(self, tx: Tx[sqlite3.Connection], event: Event[WorkRun]) -> None:
        """Note an offer down; its runner claims it."""
        run, node = event.body, self._journal.me.node
        if not any(member.index == run.member and member.node == node for member in run.members):
            msg = f"work.run of job {run.job_id} attempt {run.attempt}: member {run.member} is not on node {node}"
            raise Refused(msg)
        key = AttemptKey(run.job_id, run.attempt, run.member)
        self._journal.apply_in(tx, key, Offered(run, self._ports.hold(key)))
        self._agent.wake(key)

    async def stop(self, tx: Tx[sqlite3.Connection], event: Event[WorkStop]) -> None:
        """Note a stop down, as a tombstone where its offer has not come yet."""
        stop = event.body
        key = AttemptKey(stop.job_id, stop.attempt, stop.member)
        order = StopOrder(ExitCause.STOPPED, float(stop.grace_s), stop.reason)
        self._journal.apply_in(tx, key, StopAsked(key, stop.tenant, order))
        self._agent.wake(key)
