"""The bus in memory: stored messages handed to durables, requests with replies.

What it promises is what JetStream promises here: a stored message is handed over until it is acknowledged. So a message
comes late, twice, out of order, or again although it was handled; it is never lost. A request may be, and so may its
reply.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tests.sim.faults import Faults
from tests.sim.loop import SECOND, Loop
from tests.sim.story import Story

ACK_WAIT_MS = 30 * SECOND
NAK_MS = 2 * SECOND
MOST_DELIVERIES = 60
LATENCY_MS = 3
LATE_MS = (500, 90 * SECOND)


@dataclass(slots=True)
class Mail:
    """A message in its stream. `copies` are still to be handed over and acknowledged."""

    id: int
    topic: str
    key: str
    subject: str
    sequence: int
    body: Any
    stored_ms: int = 0
    copies: int = 0

    @property
    def about(self) -> str:
        """The message in words that are the same in every run of the seed."""
        return f"{self.topic} {self.subject}#{self.sequence}"


class Consumer(Protocol):
    """Somebody with durables on the bus."""

    @property
    def name(self) -> str:
        """Who it is."""
        ...

    def back_ms(self) -> int | None:
        """None while it takes messages, else when to try again."""
        ...

    def take(self, mail: Mail, attempt: str) -> bool:
        """Handle a message; False asks for it again. `attempt` names this delivery."""
        ...

    def forget(self, mail: Mail) -> None:
        """No copy of the message will come any more."""
        ...


class Bus:
    """Streams, durables and requests."""

    def __init__(self, loop: Loop, faults: Faults, story: Story) -> None:
        self.loop = loop
        self.faults = faults
        self.story = story
        self.up = True
        self.delivered = 0
        self._ids = 0
        self._durables: dict[str, list[Consumer]] = {}
        self._nodes: dict[str, Consumer] = {}

    def next_id(self) -> int:
        """An id for a new message."""
        self._ids += 1
        return self._ids

    def listen(self, topic: str, consumer: Consumer) -> None:
        """`consumer` has a durable for the messages of a topic."""
        self._durables.setdefault(topic, []).append(consumer)

    def attach(self, node: str, consumer: Consumer) -> None:
        """The agent of a node has a durable for the work of that node."""
        self._nodes[node] = consumer

    def publish(self, mail: Mail) -> None:
        """Store a message; while the hub is away its sender keeps trying."""
        if not self.up:
            self.loop.after(SECOND, self.publish, mail)
            return
        mail.stored_ms = mail.stored_ms or self.loop.now_ms
        self._fan_out(mail, "")
        if self.faults.hits("published again", self.faults.rates.republish, mail.about):
            again_ms = self.faults.amount(f"again {mail.about}", SECOND, 60 * SECOND)
            mail.copies += 1
            self.loop.after(again_ms, self._again, mail)

    def _again(self, mail: Mail) -> None:
        self._fan_out(mail, " again")
        mail.copies -= 1

    def _fan_out(self, mail: Mail, which: str) -> None:
        if mail.topic.startswith("work."):
            self._send(mail, self._nodes[mail.key], which)
            return
        for consumer in self._durables.get(mail.topic, ()):
            self._send(mail, consumer, which)

    def _send(self, mail: Mail, consumer: Consumer, which: str) -> None:
        """Hand a message to a durable, after what the seed does to it."""
        rates, about = self.faults.rates, f"{mail.about} to {consumer.name}{which}"
        mail.copies += 1
        wrong = self.faults.pick(about, ("late", rates.delay), ("dropped", rates.drop), ("twice", rates.duplicate))
        pause_ms = LATENCY_MS
        if wrong == "late":
            pause_ms = self.faults.amount(f"late {about}", *LATE_MS)
        elif wrong == "dropped":
            pause_ms = ACK_WAIT_MS
        elif wrong == "twice":
            mail.copies += 1
            again_ms = self.faults.amount(f"twice {about}", 1, 60 * SECOND)
            self.loop.after(pause_ms + again_ms, self._deliver, mail, consumer, f"{about}, second copy", 1)
        self.loop.after(pause_ms, self._deliver, mail, consumer, about, 1)

    def _deliver(self, mail: Mail, consumer: Consumer, about: str, count: int) -> None:
        back_ms = consumer.back_ms() if self.up else self.loop.now_ms + SECOND
        if back_ms is not None:
            self.loop.at(back_ms + LATENCY_MS, self._deliver, mail, consumer, about, count)
            return
        self.delivered += 1
        attempt = about if count == 1 else f"{about}, delivery {count}"
        if not consumer.take(mail, attempt) and count < MOST_DELIVERIES:
            self.loop.after(NAK_MS * min(count, 8), self._deliver, mail, consumer, about, count + 1)
        elif self.faults.hits("acknowledgement lost", self.faults.rates.ack_lost, attempt):
            self.loop.after(ACK_WAIT_MS, self._deliver, mail, consumer, about, count + 1)
        else:
            mail.copies -= 1
            if mail.copies == 0:
                consumer.forget(mail)

    def request(
        self, about: str, serve: Callable[[], Any], answer: Callable[[Any], None], *, timeout_ms: int = 5 * SECOND
    ) -> None:
        """Ask `serve`, and give `answer` its reply, or None when none came in time."""
        rates = self.faults.rates
        if not self.up or self.faults.hits("request lost", rates.request_lost, about):
            self.loop.after(timeout_ms, answer, None)
            return
        self.loop.after(LATENCY_MS, self._serve, about, serve, answer, timeout_ms)

    def _serve(self, about: str, serve: Callable[[], Any], answer: Callable[[Any], None], timeout_ms: int) -> None:
        reply = serve() if self.up else None
        if reply is None or self.faults.hits("reply lost", self.faults.rates.reply_lost, about):
            self.loop.after(timeout_ms - LATENCY_MS, answer, None)
        else:
            self.loop.after(LATENCY_MS, answer, reply)
