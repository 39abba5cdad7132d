"""The large world in little: everything ends, sums are checked as jobs are dropped, and what is dropped is gone."""

import pytest

from tests.sim.large import TENANTS, LargeRun, Size

pytestmark = pytest.mark.timeout(600)  # a busy machine takes its time


def test_a_large_world_in_little() -> None:
    told: list[str] = []
    found = LargeRun(Size(nodes=TENANTS, jobs=300, seed=1, load=0.5), told.append).run()
    assert found["broken"] == []
    assert sum(found["ended"].values()) == 300
    assert found["decide"]["placed"] >= 300
    assert 0 < found["utilisation"] < 1
    assert found["wait_s"]["p50"] <= found["wait_s"]["p95"]
    assert found["invariants"]["what is billed was held"] >= 300
    assert told
