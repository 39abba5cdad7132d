"""A command's spans lie beside those of its stack, where the stack keeps any."""

import json
from pathlib import Path

from contracts import registry
from libs.bus import Client
from libs.cli.session import connected
from tests.bus.rig import TENANT, job
from tests.bus.traced import spans_in
from tests.servers import NatsServer


async def _submit(stack: Path) -> None:
    spec = job()
    async with connected(stack) as session:
        await session.publish(registry.JOBS_SUBMIT, spec, key=TENANT, subject=spec.job_id, actor="test", id=spec.job_id)


async def test_a_command_writes_spans_only_where_the_stack_has_a_folder_for_them(
    hub: NatsServer, client: Client, tmp_path: Path
) -> None:
    del client
    store = {"endpoint": "http://127.0.0.1:1", "access_key": "x", "secret_key": "x", "bucket": "x"}
    (tmp_path / "stack.json").write_text(json.dumps({"nats_url": hub.url, "s3": store}))
    await _submit(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["stack.json"]
    traces = tmp_path / "traces"
    traces.mkdir()
    await _submit(tmp_path)
    submitted, ended = spans_in(traces)
    assert (submitted.name, ended.name) == ("publish jobs.v1.submit.{tenant}", "process ended")
    assert submitted.resource["service.name"] == "cli"
    assert submitted.parent == ""
