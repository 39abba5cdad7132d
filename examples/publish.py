"""Submit Farside jobs with nats-py and the JSON schema: python publish.py NATS_URL SCHEMA JOB.json..."""

import asyncio
import json
import sys
import uuid
from pathlib import Path

import jsonschema
import nats


async def publish(url: str, schema: str, *files: str) -> None:
    """Check each job against the schema, publish it as a CloudEvent, and print the id of the message."""
    connection = await nats.connect(url)
    for job in [json.loads(Path(file).read_text()) for file in files]:
        jsonschema.validate(job, json.loads(Path(schema).read_text()))
        event = {"specversion": "1.0", "type": "io.farside.jobs.submit.v1", "source": "/examples/publish"}
        event |= {"id": str(uuid.uuid4()), "subject": job["job_id"], "datacontenttype": "application/json"}
        headers = {f"ce-{name}": value for name, value in event.items()} | {"Nats-Msg-Id": event["id"]}
        subject = f"jobs.v1.submit.{job['tenant']}"
        await connection.jetstream().publish(subject, json.dumps(job).encode(), stream="JOBS_CMD", headers=headers)
        print(job["job_id"], event["id"])
    await connection.close()


asyncio.run(publish(*sys.argv[1:]))
