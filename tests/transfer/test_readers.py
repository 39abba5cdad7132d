"""A node learns where a dataset stands when a job on it was placed there, and not otherwise."""

from pathlib import Path

import pytest

from contracts import registry
from contracts.requests import DatasetLookup, ProblemCode
from contracts.transfers import TransferCompleted
from libs.bus import Problem
from libs.kit.ids import new_id
from tests.checkpoint.stage import NODE, TENANT, Stage
from tests.transfer.test_service import prepare

pytestmark = pytest.mark.asyncio(loop_scope="module")

CURIOUS = "remote-9"


async def test_a_node_learns_nothing_of_datasets_that_no_job_of_its_own_reads(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    await upload.send()
    done = await upload.ended()
    assert isinstance(done, TransferCompleted)
    other = upload.dataset.model_copy(update={"version": "v2"})
    await stage.place(new_id(), 1, [NODE, NODE], dataset=upload.dataset)
    await stage.place(new_id(), 1, [CURIOUS], dataset=other)
    await stage.place(new_id(), 1, [CURIOUS], tenant="intruder", dataset=upload.dataset)
    await stage.until_placed()
    there = DatasetLookup(tenant=TENANT, name=upload.dataset.name, version=upload.dataset.version)
    absent = there.model_copy(update={"version": "v3"})
    for lookup in (there, absent):
        with pytest.raises(Problem) as problem:
            await stage.client.request(registry.QUERY_DATASET, lookup, key=CURIOUS, timeout_s=1)
        assert problem.value.code is ProblemCode.UNAVAILABLE
        assert f"{lookup.version} was placed on node {CURIOUS}, as far as is known" in problem.value.message
    assert await stage.client.request(registry.QUERY_DATASET, there, key=NODE) == done
