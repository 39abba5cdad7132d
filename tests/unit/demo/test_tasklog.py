"""Reading what the training script prints."""

from deploy.demo import tasklog

LOG = b"attempt 1 begins after step 0\nstep 1 loss 2.5\nstep 2 loss 1e-3\nstep 2 accuracy 0.9 on 360\nstep 3 loss 0.7"


def test_losses_of_whole_lines() -> None:
    assert tasklog.losses(LOG) == {1: 2.5, 2: 0.001}
    assert tasklog.losses(LOG + b"\n")[3] == 0.7


def test_an_empty_log_has_no_step() -> None:
    assert tasklog.losses(b"") == {}
