"""One attempt from its offer to its exit."""

from tests.agent.world import World
from tests.waiting import until

SCRIPT = """
import os
import numpy as np
import libs.sdk as farside

with farside.attach() as job:
    print("cards", os.environ["FARSIDE_CARDS"], os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    weights = np.arange(4.0)
    for step in range(1, 6):
        job.progress(step, loss=1.0 / step)
        if step == 3:
            job.save(step, {"w": weights}, extra={"note": "three"})
            weights += 100
    job.wait_saved()
print("done", flush=True)
"""


async def test_an_attempt_runs_reports_saves_and_exits(world: World) -> None:
    run = world.run(script=SCRIPT, seed=7)
    world.agent().start()
    await world.offer(run)
    exited = await world.saw(run, "exited")
    assert (exited.cause, exited.exit_code) == ("completed", 0), exited
    names = world.names(run)
    assert names[0] == "started"
    assert names[-1] == "exited"
    assert names.index("progressed") < names.index("saved")
    steps = [point.step for body in world.bodies(run, "progressed") for point in body.points]
    assert steps == [1, 2, 3, 4, 5]
    saved = await world.saw(run, "saved")
    assert saved.step == 3
    assert saved.binding.seed == 7
    digest = world.store.digest(world.store.key(saved.shard.uri))
    assert (digest.sha256, digest.size_bytes) == (saved.shard.sha256, saved.shard.size_bytes)
    assert "cards 1 1" in world.log_text(run)
    assert "done" in world.log_text(run)
    assert [claim.endpoint.split(":")[0] for claim in world.claims][:1] == ["127.0.0.1"]
    assert len(world.restores) == 1
    await until(lambda: not (world.attempt_folder(run) / "ckpt").exists())
