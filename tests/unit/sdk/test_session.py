"""A job's session against an agent on a real socket, and on its own."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import libs.sdk as farside
from libs.sdk import reporter, tensors
from libs.sdk.protocol import RestoreInfo
from tests.unit.sdk.fakes import FakeAgent, info
from tests.waiting import until_sync


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    fake = FakeAgent(tmp_path / "sock", info(folder)).start()
    monkeypatch.setenv("FARSIDE_SOCKET", str(fake.path))
    yield fake
    fake.may_save.set()
    fake.stop()


def steps(agent: FakeAgent) -> list[int]:
    return [point["step"] for point in agent.kept]


def test_a_session_knows_its_job(agent: FakeAgent) -> None:
    with farside.attach() as job:
        assert (job.attempt, job.rank, job.world, job.cards, job.seed) == (2, 1, 2, (0, 1), 7)
        assert (job.rendezvous, job.checkpoint_interval_steps) == ("127.0.0.1:4001", 10)
        assert job.restore() is None
        job.ready("127.0.0.1:8000")
        with pytest.raises(farside.SdkError, match="names no dataset"):
            job.dataset()
    assert agent.endpoints == ["127.0.0.1:8000"]


def test_progress_arrives_once_and_in_order(agent: FakeAgent) -> None:
    with farside.attach() as job:
        for step in range(2000):
            job.progress(step, loss=1.0 / (step + 1), bad=float("nan"))
    assert steps(agent) == list(range(2000))
    assert agent.kept[3]["metrics"] == {"loss": 0.25}


def test_points_that_only_a_dead_agent_knew_are_sent_again(agent: FakeAgent) -> None:
    with farside.attach() as job:
        for step in range(50):
            job.progress(step)
        until_sync(lambda: agent.held == 50)
        agent.stop()
        for step in range(50, 100):
            job.progress(step)
        agent.start()
    assert steps(agent) == list(range(100))


def test_progress_never_waits_and_keeps_the_shape_of_its_curve(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "HELD_POINTS", 100)
    job = farside.attach()
    agent.stop()
    begun = time.monotonic()
    for step in range(1000):
        job.progress(step)
    assert time.monotonic() - begun < 1.0
    agent.start()
    job.close()
    kept = steps(agent)
    assert len(kept) <= 101
    assert kept[-1] == 999
    assert kept == sorted(kept)
    assert len([step for step in kept if step < 500]) > 10


@pytest.mark.parametrize("arguments", [(-1, {}), (1, {f"m{n}": 1.0 for n in range(65)}), (1, {"n" * 257: 1.0})])
def test_absurd_progress_is_refused_at_once(agent: FakeAgent, arguments: tuple[int, dict[str, float]]) -> None:
    del agent
    with farside.attach() as job, pytest.raises(ValueError, match="progress of step"):
        job.progress(arguments[0], **arguments[1])


def test_a_save_holds_the_values_of_its_call(agent: FakeAgent) -> None:
    weights, columns = np.arange(200_000.0), np.asfortranarray(np.arange(6.0).reshape(2, 3))
    extra = {"rng": np.random.default_rng(7).bit_generator.state, "order": [1, 2], "scale": np.float64(0.5)}
    with farside.attach() as job:
        job.save(10, {"w": weights, "c": columns}, extra=extra)
        weights[:] = -1
        columns[:] = -1
        extra["order"] = []
        job.wait_saved()
        (save,) = agent.saves
        path = Path(agent.job.folder, save["file"])
        checkpoint = tensors.read(path)
    assert checkpoint.step == 10
    assert np.array_equal(checkpoint.tensors["w"], np.arange(200_000.0))
    assert np.array_equal(checkpoint.tensors["c"], np.arange(6.0).reshape(2, 3))
    assert checkpoint.extra["order"] == [1, 2]
    assert checkpoint.extra["scale"] == 0.5
    again = np.random.default_rng(0)
    again.bit_generator.state = checkpoint.extra["rng"]
    assert again.random() == np.random.default_rng(7).random()
    assert (save["step"], save["size_bytes"]) == (10, path.stat().st_size)


def test_progress_comes_before_the_save_it_led_to(agent: FakeAgent) -> None:
    with farside.attach() as job:
        for step in range(20):
            job.progress(step)
        agent.may_save.clear()
        job.save(19, {"w": np.zeros(1)})
        until_sync(lambda: steps(agent) == list(range(20)))
        agent.may_save.set()


def test_a_second_save_waits_for_the_first_and_counts_it_as_stall(agent: FakeAgent) -> None:
    agent.may_save.clear()
    with farside.attach() as job:
        job.save(1, {"w": np.zeros(1)})
        threading.Timer(0.4, agent.may_save.set).start()
        job.save(2, {"w": np.zeros(1)})
        job.wait_saved()
    first, second = agent.saves
    assert (first["step"], second["step"]) == (1, 2)
    assert first["stall_ms"] < 300 <= second["stall_ms"]
    assert first["write_ms"] <= 10_000


def test_waiting_for_saves_is_bounded(agent: FakeAgent) -> None:
    agent.pending = [5]
    with farside.attach() as job, pytest.raises(farside.SaveError, match="step 5 is not in the store"):
        job.wait_saved(timeout_s=0.3)


def test_a_failed_save_is_told_by_the_next_call(agent: FakeAgent) -> None:
    agent.refuse = "save"
    job = farside.attach()
    job.save(1, {"w": np.zeros(1)})
    with pytest.raises(farside.SaveError, match="not today"):
        job.save(2, {"w": np.zeros(1)})
    agent.refuse = None
    job.save(3, {"w": np.zeros(1)})
    job.close()
    assert [save["step"] for save in agent.saves] == [3]


def test_what_is_not_json_is_refused_before_anything_is_written(agent: FakeAgent) -> None:
    with farside.attach() as job, pytest.raises(farside.SaveError, match="object is not JSON"):
        job.save(1, {}, extra={"thing": object()})
    assert not agent.saves


def test_what_is_no_number_is_no_tensor(agent: FakeAgent) -> None:
    with farside.attach() as job:
        with pytest.raises(farside.SaveError, match="tensor 'names' has dtype <U3"):
            job.save(1, {"names": np.array(["abc"])})
        job.save(2, {})
        job.save(3, {"scalar": np.array(1.5), "flag": np.array([True]), "half": np.zeros(2, np.float16)})
    assert [save["step"] for save in agent.saves] == [2, 3]
    read = tensors.read(Path(agent.job.folder, agent.saves[1]["file"]))
    assert (read.tensors["scalar"].shape, float(read.tensors["scalar"])) == ((), 1.5)


def test_a_restored_session_reads_its_shard(agent: FakeAgent, tmp_path: Path) -> None:
    path = tmp_path / "given.safetensors"
    tensors.write(path, {"w": np.arange(3)}, tensors.encoded(40, {"epoch": 2}))
    agent.job = info(Path(agent.job.folder), restore=RestoreInfo(40, str(path)))
    with farside.attach() as job:
        checkpoint = job.restore()
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.extra) == (40, {"epoch": 2})
    assert np.array_equal(checkpoint.tensors["w"], np.arange(3))


def test_an_agent_that_stays_away_is_given_up(agent: FakeAgent) -> None:
    agent.stop()
    with pytest.raises(farside.LinkError, match=r"did not answer 'attach' in 0\.2 s"):
        farside.attach(patience_s=0.2)


def test_a_job_that_looks_for_a_stop_sees_it(agent: FakeAgent) -> None:
    del agent
    before = signal.getsignal(signal.SIGTERM)
    try:
        with farside.attach() as job:
            assert not job.stopping
            os.kill(os.getpid(), signal.SIGTERM)
            until_sync(lambda: job.stopping)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_same_script_runs_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARSIDE_SOCKET", raising=False)
    folder = tmp_path / "local"
    for start in range(2):
        with farside.attach(local_dir=folder, dataset=tmp_path, seed=3) as job:
            assert (job.seed, job.dataset(), job.world) == (3, tmp_path, 1)
            checkpoint = job.restore()
            assert (None if checkpoint is None else checkpoint.step) == (None if start == 0 else 5)
            for step in range(1, 6):
                job.progress(step, loss=0.1)
                job.save(step, {"w": np.full(2, step)}, extra={"step": step})
            job.wait_saved()
            job.ready("nowhere:1")
    kept = sorted(path.stem for path in (folder / "checkpoints").iterdir())
    assert kept == ["000000000003", "000000000004", "000000000005"]
    lines = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5] * 2


def test_a_script_that_fails_does_not_wait_for_its_agent(agent: FakeAgent) -> None:
    begun = time.monotonic()

    def script() -> None:
        with farside.attach() as job:
            agent.stop()
            job.progress(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        script()
    assert time.monotonic() - begun < 5.0
