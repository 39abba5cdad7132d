"""Submit Farside jobs with nats-py and the JSON schema: python publish.py NATS_URL SCHEMA JOB.json..."""
# pyright: reportUnknownMemberType=false

import asyncio
import json
import sys
from pathlib import Path

import jsonschema
import nats


async def publish(url: str, schema: str, *jobs: str) -> None:
    """Check each job against the schema and publish it as a CloudEvent; its id makes sending it again harmless."""
    connection = await nats.connect(url)
    for job in map(json.loads, jobs):
        jsonschema.validate(job, json.loads(schema))
        event = {"specversion": "1.0", "type": "io.farside.jobs.submit.v1", "source": "/examples/publish"}
        event |= {"id": job["job_id"], "subject": job["job_id"], "datacontenttype": "application/json"}
        headers = {f"ce-{name}": value for name, value in event.items()}
        subject = f"jobs.v1.submit.{job['tenant']}"
        await connection.jetstream().publish(subject, json.dumps(job).encode(), headers=headers)
    await connection.close()


asyncio.run(publish(sys.argv[1], *(Path(name).read_text() for name in sys.argv[2:])))
