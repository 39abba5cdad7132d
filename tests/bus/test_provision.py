"""Provisioning: once, from the registry; and FastStream never declares anything (PITFALLS 4, 5, 11, 18, 20)."""

from typing import Any

import pytest
from nats.js.api import ConsumerConfig, DiscardPolicy, PersistMode, RetentionPolicy, StorageType

from contracts import registry
from libs.bus import BusError, Client
from libs.bus.connection import add_consumer, add_stream, update_stream
from libs.bus.provision import consumer_configs, provision, stream_config, subjects_of
from libs.db import Pool
from tests.bus.rig import NODES, job, new_app, record, running, submit
from tests.servers import NatsServer
from tests.waiting import until

DURABLE = "scheduler-jobs-submit"


async def test_every_stream_and_durable_of_the_registry_is_there(client: Client) -> None:
    for stream in registry.STREAMS:
        config = (await client.js.stream_info(stream.name)).config
        assert sorted(config.subjects or []) == sorted(subjects_of(stream))
        assert config.max_age == stream.max_age_s
        assert config.duplicate_window == pytest.approx(stream.dedup_s)
        assert config.storage == StorageType.FILE
        assert config.max_msgs_per_subject == (1 if stream.newest_only else stream.waiting_per_key or -1)
        assert config.discard_new_per_subject == (stream.waiting_per_key is not None)
        workqueue = stream.retention == "workqueue"
        assert config.retention == (RetentionPolicy.WORK_QUEUE if workqueue else RetentionPolicy.LIMITS)
        assert config.discard == (DiscardPolicy.NEW if workqueue else DiscardPolicy.OLD)
    for stream_name, config in consumer_configs(NODES):
        found = (await client.js.consumer_info(stream_name, config.durable_name or "")).config
        assert found.max_deliver == -1
        assert found.ack_wait == config.ack_wait
        assert found.inactive_threshold in {None, 0.0}
        assert (found.filter_subject, found.filter_subjects) == (config.filter_subject, config.filter_subjects)


async def test_pitfall_11_provisioning_again_brings_changes_back(hub: NatsServer, client: Client) -> None:
    drifted = ConsumerConfig(durable_name=DURABLE, ack_wait=77, filter_subject=registry.JOBS_SUBMIT.subject("*"))
    await add_consumer(client.js, "JOBS_CMD", drifted)
    config = stream_config(registry.JOBS_CMD)
    config.max_age = 60
    await update_stream(client.js, config)
    await provision(hub.url, NODES)
    consumer = await client.js.consumer_info("JOBS_CMD", DURABLE)
    assert consumer.config.ack_wait == 10
    assert (await client.js.stream_info("JOBS_CMD")).config.max_age == registry.JOBS_CMD.max_age_s


async def test_a_change_that_the_server_refuses_is_named(hub: NatsServer, client: Client) -> None:
    await client.js.delete_stream("JOBS")
    config = stream_config(registry.JOBS)
    config.storage = StorageType.MEMORY
    await add_stream(client.js, config)
    with pytest.raises(BusError, match="stream JOBS cannot be brought to the registry's form"):
        await provision(hub.url, NODES)


async def test_only_heartbeats_are_acknowledged_before_they_are_on_disk(hub: NatsServer, client: Client) -> None:
    await client.js.delete_stream("HEARTBEATS")
    config = stream_config(registry.HEARTBEATS)
    config.persist_mode = None
    await add_stream(client.js, config)
    await provision(hub.url, NODES)
    modes = {stream.name: (await client.js.stream_info(stream.name)).config.persist_mode for stream in registry.STREAMS}
    assert {name for name, mode in modes.items() if mode is not None} == {"HEARTBEATS"}
    assert modes["HEARTBEATS"] == PersistMode.ASYNC
    assert all(stream_config(stream, replicas=3).persist_mode is None for stream in registry.STREAMS)


async def test_pitfall_04_an_app_changes_no_stream_and_no_consumer(hub: NatsServer, client: Client, pool: Pool) -> None:
    config = stream_config(registry.JOBS_CMD)
    config.max_age, config.duplicate_window, config.max_msgs = 1234, 5, 99
    await update_stream(client.js, config)
    before = await _shape(client)
    app = new_app(hub.url, pool)
    app.on(registry.JOBS_SUBMIT, record)
    async with running(app):
        await submit(client, job())
        await until(lambda: _acked(client))
        assert await _shape(client) == before


async def _shape(client: Client) -> tuple[Any, Any]:
    stream = await client.js.stream_info("JOBS_CMD")
    consumer = await client.js.consumer_info("JOBS_CMD", DURABLE)
    return stream.config.as_dict(), consumer.config.as_dict()


async def _acked(client: Client) -> bool:
    return (await client.js.stream_info("JOBS_CMD")).state.messages == 0


async def test_a_full_work_queue_refuses_instead_of_dropping(client: Client) -> None:
    config = stream_config(registry.JOBS_CMD)
    config.max_msgs = 2
    await update_stream(client.js, config)
    await submit(client, job())
    await submit(client, job())
    with pytest.raises(Exception, match="maximum messages exceeded"):
        await submit(client, job())


async def test_pitfall_20_the_advisory_of_a_message_given_up_is_kept(client: Client) -> None:
    """Durables of the registry deliver without limit; an operator's own consumer may not, and that is seen."""
    await add_consumer(
        client.js,
        "JOBS",
        ConsumerConfig(durable_name="operator", max_deliver=1, ack_wait=0.2, filter_subject="jobs.v1.held.*"),
    )
    await client.js.publish("jobs.v1.held.acme", b"{}")
    subscription = await client.js.pull_subscribe_bind(stream="JOBS", durable="operator")
    await subscription.fetch(1, timeout=2)
    await until(lambda: _fetch_nothing(subscription))
    await until(lambda: _advised(client))


async def _fetch_nothing(subscription: Any) -> bool:
    try:
        await subscription.fetch(1, timeout=0.5)
    except TimeoutError:
        return True
    return False


async def _advised(client: Client) -> bool:
    return (await client.js.stream_info("ADVISORIES")).state.messages >= 1


@pytest.mark.parametrize("stream", registry.STREAMS, ids=lambda stream: stream.name)
def test_no_two_streams_keep_the_same_subject(stream: registry.Stream) -> None:
    others = {subject for other in registry.STREAMS if other is not stream for subject in subjects_of(other)}
    assert not others & set(subjects_of(stream))
