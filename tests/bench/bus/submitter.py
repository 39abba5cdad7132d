"""A tenants' publisher in a process of its own: `python -m tests.bench.bus.submitter PER_SECOND SECONDS TENANT...`.

Submits at a steady rate whatever becomes of it, the tenants in turn. Prints when each submission was published, in
nanoseconds of this machine's clock (CLOCK_REALTIME, which the server's time stamps are read from too), by job.
"""

import asyncio
import sys

from contracts import registry
from contracts.jobs import JobKind, JobSpec, Resources
from libs.bus import Client
from libs.kit.clock import epoch_ns
from libs.kit.ids import new_id
from libs.kit.settings import ServiceSettings
from tests.bench.bus.child import answer


def spec(tenant: str) -> JobSpec:
    """A job of one card."""
    return JobSpec(
        job_id=new_id(),
        tenant=tenant,
        name="bench",
        kind=JobKind.TRAINING,
        command=["true"],
        resources=Resources(cards=1),
        max_runtime_s=60,
    )


async def main(per_second: float, seconds: float, tenants: list[str]) -> dict[str, int]:
    """When each job was published."""
    published: dict[str, int] = {}
    loop = asyncio.get_running_loop()
    async with await Client.connect(ServiceSettings().nats_url, name="bench") as client:

        async def submit(tenant: str) -> None:
            job = spec(tenant)
            published[job.job_id] = epoch_ns()
            await client.publish(
                registry.JOBS_SUBMIT, job, key=tenant, subject=job.job_id, actor="bench", timeout_s=30.0
            )

        begun = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in range(round(per_second * seconds)):
                await asyncio.sleep(begun + number / per_second - loop.time())
                group.create_task(submit(tenants[number % len(tenants)]))
    return published


if __name__ == "__main__":
    answer(main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
