"""The alerting service on its stage, the events that the test plays, and what came of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from contracts import registry
from contracts.alerts import Alert, AlertPhase, AlertRecord, AlertsQuery, Notification
from contracts.base import Model
from contracts.checkpoints import CheckpointCommitted, CheckpointFailed, CheckpointFailure
from contracts.jobs import JobState
from contracts.nodes import NodePhase, NodeState
from contracts.registry import Message
from libs.kit.ids import new_id
from tests.alerting.receiver import Receiver, Taken
from tests.checkpoint.stage import TENANT, Stage
from tests.waiting import until

EXAMPLES = Path(registry.__file__).parent / "examples"
INVENTORY, CHECKPOINT, SCHEDULER = "inventory", "checkpoint", "scheduler"

M = TypeVar("M", bound=Model)


def example(message: Message[M], name: str) -> M:
    """The body of a good example."""
    content = json.loads((EXAMPLES / message.id / f"{name}.json").read_text(encoding="utf-8"))
    return message.model.model_validate_json(json.dumps(content["body"]))


LOST = example(registry.NODES_LOST, "good-lease-passed")
COMMITTED = example(registry.CHECKPOINTS_COMMITTED, "good-single-shard")
FAILED = example(registry.CHECKPOINTS_FAILED, "good-fenced")
FINISHED = example(registry.JOBS_FINISHED, "good-succeeded")


@dataclass
class Scene:
    """Stage and receivers."""

    stage: Stage
    pager: Receiver
    chat: Receiver

    async def records(self, state: AlertPhase | None = None, **labels: str) -> list[AlertRecord]:
        """Episodes with these labels, newest first."""
        query = AlertsQuery(state=state)
        page = await self.stage.client.request(registry.QUERY_ALERTS, query, key=registry.NO_KEY, timeout_s=20)
        return [one for one in page.alerts if labels.items() <= one.alert.labels.items()]

    async def alert(self, phase: AlertPhase, seen: int = 1, **labels: str) -> Alert:
        """Wait until the newest episode is in this phase and was seen as often."""

        async def found() -> Alert | None:
            records = await self.records(None, **labels)
            alert = records[0].alert if records else None
            return alert if alert is not None and (alert.state, alert.seen) == (phase, seen) else None

        alert = await until(found, 30, f"{labels} {phase} seen {seen}")
        assert alert is not None
        return alert

    async def told(self, messages: Sequence[Message[Any]], **labels: str) -> list[Alert]:
        """Bodies of the alert events on the bus."""
        found = await self.stage.client.history(messages)
        return [event.body for event in found if labels.items() <= event.body.labels.items()]

    async def notification(
        self, alert: Alert, receiver: str, about: AlertPhase, state: str, timeout_s: float = 30
    ) -> Notification:
        """Wait until a notification is in this state."""

        async def found() -> Notification | None:
            [record] = [one for one in await self.records() if one.alert.alert_id == alert.alert_id]
            return next(
                (
                    one
                    for one in record.notifications
                    if (one.receiver, one.about, one.state) == (receiver, about, state)
                ),
                None,
            )

        notification = await until(found, timeout_s, f"{receiver} {about} {state}")
        assert notification is not None
        return notification

    async def until_taken(self, receiver: Receiver, count: int, **labels: str) -> list[Taken]:
        """Wait until a receiver has got so many notifications."""
        await until(lambda: len(receiver.of(**labels)) >= count, 30, f"{count} notifications about {labels}")
        return receiver.of(**labels)

    def restart(self, **environment: str) -> None:
        """SIGKILL and a new process, with other settings."""
        self.stage.service.kill()
        self.stage.service.environment.update(environment)
        self.stage.service.start()


@dataclass
class Node:
    """A node that inventory tells about."""

    scene: Scene
    name: str = field(default_factory=lambda: f"node-{new_id()[-12:]}")

    async def tell(
        self, message: Message[NodeState], version: int, reason: str = "no heartbeat for 270 s", **more: object
    ) -> None:
        body = LOST.model_copy(update={"node": self.name, "version": version, "reason": reason, **more})
        await self.scene.stage.client.publish(
            message, body, key=self.name, subject=self.name, actor=INVENTORY, sequence=version
        )

    async def lost(self, version: int) -> None:
        await self.tell(registry.NODES_LOST, version)

    async def returned(self, version: int) -> None:
        await self.tell(registry.NODES_RETURNED, version, "heard again")

    async def quarantined(self, version: int) -> None:
        await self.tell(registry.NODES_QUARANTINED, version, "XID 79", state=NodePhase.READY, bad_cards=[1])

    async def released(self, version: int, *bad_cards: int) -> None:
        await self.tell(registry.NODES_RELEASED, version, "reset", state=NodePhase.READY, bad_cards=[*bad_cards])


@dataclass
class Job:
    """A job whose checkpoints are told about."""

    scene: Scene
    job_id: str = field(default_factory=new_id)

    async def _tell(self, message: Message[M], body: M, sequence: int, actor: str) -> None:
        await self.scene.stage.client.publish(
            message, body, key=TENANT, subject=self.job_id, actor=actor, sequence=sequence
        )

    async def failed(self, sequence: int, step: int, cause: CheckpointFailure = CheckpointFailure.CONFLICT) -> None:
        changes = {"job_id": self.job_id, "step": step, "cause": cause, "message": f"step {step}: there already"}
        body: CheckpointFailed = FAILED.model_copy(update=changes)
        await self._tell(registry.CHECKPOINTS_FAILED, body, sequence, CHECKPOINT)

    async def committed(self, sequence: int, step: int, attempt: int = 1) -> None:
        changes = {"job_id": self.job_id, "step": step, "attempt": attempt}
        body: CheckpointCommitted = COMMITTED.model_copy(update=changes)
        await self._tell(registry.CHECKPOINTS_COMMITTED, body, sequence, CHECKPOINT)

    async def finished(self) -> None:
        spec = FINISHED.spec.model_copy(update={"job_id": self.job_id})
        body: JobState = FINISHED.model_copy(update={"job_id": self.job_id, "spec": spec})
        await self._tell(registry.JOBS_FINISHED, body, body.version, SCHEDULER)
