"""The bus without Farside, in a process of its own: `python -m tests.bench.bus.peer fetch|publish COUNT WARM`.

`fetch`: nats-py fetches 100 messages at a time and acks each. `publish`: nats-py publishes and waits for each PubAck,
256 at once. Prints messages a second, once the first WARM are done.
"""

import sys
import time

from nats.js import JetStreamContext

from libs.bus.connection import Address, Callbacks, connect, jetstream
from libs.kit.settings import ServiceSettings
from tests.bench.bus.child import answer
from tests.bench.bus.load import RAW, STREAM, publish, said

FETCH = 100


async def fetch(js: JetStreamContext, count: int) -> None:
    """Take `count` messages."""
    subscription = await js.pull_subscribe_bind(RAW, STREAM)
    while count > 0:
        messages = await subscription.fetch(min(FETCH, count), timeout=10)
        for message in messages:
            await message.ack()
        count -= len(messages)
    await subscription.unsubscribe()


async def main(what: str, count: int, warm: int) -> float:
    """Messages a second."""
    settings = ServiceSettings()
    connection = await connect(Address(settings.nats_url, "bench", settings.nats_creds), Callbacks())
    js = jetstream(connection)
    if what == "publish":
        rows = [said() for _ in range(warm + count)]
        await publish(js, rows[:warm])
        begun = time.perf_counter()
        await publish(js, rows[warm:])
    else:
        await fetch(js, warm)
        begun = time.perf_counter()
        await fetch(js, count)
        await connection.flush()
    seconds = time.perf_counter() - begun
    await connection.close()
    return count / seconds


if __name__ == "__main__":
    answer(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
