"""Provisioning: streams and durables of the registry, made or brought up to date, once and by nobody else.

Services never declare a stream as they start; they wait until theirs is there. Run as
`python -m libs.bus.provision --nats URL [--node NAME ...]`, or call `provision`.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    PersistMode,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from contracts import registry
from contracts.registry import Stream
from libs.bus.connection import (
    Address,
    Callbacks,
    add_consumer,
    add_stream,
    close,
    connect,
    jetstream,
    update_stream,
)
from libs.bus.errors import BusError
from libs.kit.logs import configure, get_logger

MAX_ACK_PENDING = 10_000  # far above what is worked on at once: what comes too early waits among them
MAX_DELIVER_UNLIMITED = -1
TENANT_ACK_WAIT_S = 30.0
READY_TIMEOUT_S = 30.0


def subjects_of(stream: Stream) -> list[str]:
    """The subjects that a stream keeps."""
    if stream is registry.REPLAYS:
        return [registry.replay_subject("*")]
    if stream is registry.ADVISORIES:
        return [registry.ADVISORY_SUBJECT]
    return [message.subject("*") for message in registry.MESSAGES if message.stream is stream]


def stream_config(stream: Stream, replicas: int = 1) -> StreamConfig:
    """The configuration of one stream. Work queues refuse what does not fit; events drop their oldest."""
    workqueue = stream.retention == "workqueue"
    return StreamConfig(
        name=stream.name,
        subjects=subjects_of(stream),
        retention=RetentionPolicy.WORK_QUEUE if workqueue else RetentionPolicy.LIMITS,
        discard=DiscardPolicy.NEW if workqueue else DiscardPolicy.OLD,
        storage=StorageType.FILE,
        persist_mode=_persist_mode(stream, replicas),
        max_age=stream.max_age_s,
        max_msgs_per_subject=1 if stream.newest_only else stream.waiting_per_key or -1,
        discard_new_per_subject=stream.waiting_per_key is not None,
        duplicate_window=stream.dedup_s,
        num_replicas=replicas,
        max_msgs=-1,
        max_bytes=-1,
        max_consumers=-1,
        allow_direct=True,
    )


def _persist_mode(stream: Stream, replicas: int) -> PersistMode | None:
    """Several replicas wait for each other and not for the disk, whatever the stream."""
    return PersistMode.ASYNC if replicas == 1 and not stream.synced else None


def consumer_configs(nodes: Iterable[str], tenants: Iterable[str] = ()) -> Iterator[tuple[str, ConsumerConfig]]:
    """Every durable as (stream, configuration).

    Per message and service, per node where so declared; for replays; per tenant and stream that it may read.
    """
    names = list(nodes)
    for message in registry.MESSAGES:
        for consumer in message.consumers:
            for node in names if consumer.per_node else [None]:
                durable = registry.durable(message, consumer, node)
                subject = message.subject(node if node is not None else "*")
                yield message.stream.name, _durable(durable, [subject], consumer.ack_wait_s)
    for service in (*registry.SERVICES, *(f"{registry.AGENT}/{node}" for node in names)):
        subjects = [registry.replay_subject(name) for name in durables_of(service)]
        if subjects:
            yield registry.REPLAYS.name, _durable(replay_durable(service), subjects, _longest_ack_wait_s(service))
    for tenant in tenants:
        for stream, durable, subjects in tenant_durables(tenant):
            yield stream.name, _durable(durable, subjects, TENANT_ACK_WAIT_S)


def durables_of(service: str) -> list[str]:
    """The names of a service's durables; an agent is named `agent/<node>`."""
    name, _, node = service.partition("/")
    return [registry.durable(message, consumer, node or None) for message, consumer in registry.consumed_by(name)]


def durables_read_by(service: str) -> Iterator[tuple[str, str]]:
    """Stream and durable of everything that a service consumes, replays among it; an agent is named `agent/<node>`."""
    name, _, node = service.partition("/")
    for message, consumer in registry.consumed_by(name):
        yield message.stream.name, registry.durable(message, consumer, node or None)
    if any(registry.consumed_by(name)):
        yield registry.REPLAYS.name, replay_durable(service)


def tenant_durables(tenant: str) -> Iterator[tuple[Stream, str, list[str]]]:
    """Stream, durable and subjects of what a tenant may read: `tenant-acme-JOBS` has its events of stream JOBS."""
    for stream in registry.STREAMS:
        subjects = [
            message.subject(tenant)
            for message in registry.MESSAGES
            if message.stream is stream and message.key is registry.Key.TENANT and registry.TENANT in message.readers
        ]
        if subjects:
            yield stream, f"tenant-{tenant}-{stream.name}", subjects


def replay_durable(service: str) -> str:
    """The durable by which a service takes replays: `scheduler-replay`, `agent-replay-<node>`."""
    name, _, node = service.partition("/")
    return f"{name}-replay-{node}" if node else f"{name}-replay"


def _longest_ack_wait_s(service: str) -> float:
    return max(consumer.ack_wait_s for _, consumer in registry.consumed_by(service.partition("/")[0]))


def _durable(name: str, subjects: list[str], ack_wait_s: float) -> ConsumerConfig:
    return ConsumerConfig(
        durable_name=name,
        name=name,
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ack_wait_s,
        max_deliver=MAX_DELIVER_UNLIMITED,
        max_ack_pending=MAX_ACK_PENDING,
        filter_subject=subjects[0] if len(subjects) == 1 else None,
        filter_subjects=subjects if len(subjects) > 1 else None,
    )


async def provision(
    nats_url: str,
    nodes: Iterable[str] = (),
    tenants: Iterable[str] = (),
    *,
    creds: Path | None = None,
    replicas: int = 1,
) -> None:
    """Add or update all streams and durables, with those of `nodes` and `tenants`. Safe to repeat.

    Raises BusError naming the stream or durable that the server would not change (some fields are fixed once made).
    """
    connection = await connect(Address(nats_url, "provision", creds), Callbacks())
    try:
        js = jetstream(connection)
        await _wait_ready(js)
        for stream in registry.STREAMS:
            await ensure_stream(js, stream, replicas)
        for stream, config in consumer_configs(nodes, tenants):
            await _ensure_consumer(js, stream, config)
    finally:
        await close(connection)


async def _wait_ready(js: JetStreamContext) -> None:
    """JetStream answers a moment after the port does."""
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            try:
                await js.account_info()
            except Exception as error:  # noqa: BLE001 - bounded by the timeout above
                get_logger().info("provision.waiting", error=repr(error))
                await asyncio.sleep(0.1)
            else:
                return


async def ensure_stream(js: JetStreamContext, stream: Stream, replicas: int = 1) -> None:
    """Add or update one stream. Raises BusError when the server refuses the change."""
    config = stream_config(stream, replicas)
    try:
        try:
            found = await js.stream_info(stream.name)
        except NotFoundError:
            await add_stream(js, config)
        else:
            if stream.newest_only and found.config.persist_mode != config.persist_mode:
                await js.delete_stream(stream.name)  # this much no server changes, and what it holds is said again
                await add_stream(js, config)
            else:
                await update_stream(js, config)
    except APIError as error:
        msg = f"stream {stream.name} cannot be brought to the registry's form: {error.description}"
        raise BusError(msg) from error
    get_logger().debug("provision.stream", stream=stream.name)


async def _ensure_consumer(js: JetStreamContext, stream: str, config: ConsumerConfig) -> None:
    try:
        await add_consumer(js, stream, config)
    except APIError as error:
        msg = f"durable {config.durable_name} of {stream} cannot be brought to the registry's form: {error.description}"
        raise BusError(msg) from error
    get_logger().debug("provision.consumer", stream=stream, consumer=config.durable_name)


def main(arguments: list[str] | None = None) -> int:
    """The command line: provision and say what was done."""
    parser = argparse.ArgumentParser(prog="python -m libs.bus.provision", description=__doc__)
    parser.add_argument("--nats", default="nats://127.0.0.1:4222", help="address of the hub")
    parser.add_argument("--creds", type=Path, help="credentials file")
    parser.add_argument("--node", action="append", default=[], help="a node that gets durables of its own (repeat)")
    parser.add_argument("--tenant", action="append", default=[], help="a tenant that gets durables of its own (repeat)")
    parser.add_argument("--replicas", type=int, default=1, help="copies of each stream (3 in production)")
    options = parser.parse_args(arguments)
    configure("provision")
    made = provision(options.nats, options.node, options.tenant, creds=options.creds, replicas=options.replicas)
    asyncio.run(made)
    get_logger().info("provision.done", streams=len(registry.STREAMS), nodes=options.node, tenants=options.tenant)
    return 0


if __name__ == "__main__":
    sys.exit(main())
