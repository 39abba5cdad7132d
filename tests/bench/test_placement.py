"""The benchmark of placing runs on a load of its own, and on any files of the format."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.frame import ROOT

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{number},64000,262144,4,T4\n" for number in range(8))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,4000,1024,1,300\nq,9000,1024,1,1000\nr,2000,512,0,0\n"


@pytest.mark.timeout(300)
def test_the_bench_of_placing_takes_files_of_the_format(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES, encoding="utf-8")
    pods.write_text(PODS, encoding="utf-8")
    command = [sys.executable, "-m", "tests.bench", "placement", "--quick", "--nodes", str(nodes), "--pods", str(pods)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert set(cases) == {"plc_openb", "plc_10k", "cycle", "unallocated"}
    assert all(set(case["peers"]) == {"fgd", "bestfit"} for case in cases.values())
    assert all(case["value"] > 0 for name, case in cases.items() if name != "unallocated")
    assert cases["cycle"]["placed"] > 0
    assert list(cases["cycle"]["s_by_nodes"]) == ["50", "100", "200"]
