"""A task that counts: a line `attempt member pid monotonic step` for every step, a checkpoint every few.

In: STEPS, PACE_S and TRACE (a file outside the attempt's directory) from the job's environment. Members of a gang meet
at the rendezvous and take each step together, so that none of them can go on alone.
"""

import os
import socket
import time
from pathlib import Path

import numpy as np

import libs.sdk as farside
from libs.sdk import Session

STEPS = int(os.environ["STEPS"])
PACE_S = float(os.environ["PACE_S"])
TRACE = Path(os.environ["TRACE"])
MEETING_TIMEOUT_S = 60.0


class Meeting:
    """The members of a gang, in step: member 0 waits for a byte of each other one and sends one back."""

    def __init__(self, job: Session) -> None:
        self._peers: list[socket.socket] = []
        self._leads = job.rank == 0
        if job.world == 1:
            return
        assert job.rendezvous is not None, "a gang without a rendezvous"
        host, port = job.rendezvous.rsplit(":", 1)
        if self._leads:
            with socket.create_server((host, int(port))) as server:
                server.settimeout(MEETING_TIMEOUT_S)
                self._peers = [server.accept()[0] for _ in range(job.world - 1)]
        else:
            self._peers = [self._join(host, int(port))]

    def _join(self, host: str, port: int) -> socket.socket:
        deadline = time.monotonic() + MEETING_TIMEOUT_S
        while True:
            try:
                return socket.create_connection((host, port), MEETING_TIMEOUT_S)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def step(self) -> None:
        """Wait for everybody."""
        if self._leads:
            for peer in self._peers:
                assert peer.recv(1), "a member left"
        for peer in self._peers:
            peer.sendall(b".")
        if not self._leads:
            for peer in self._peers:
                assert peer.recv(1), "member 0 left"


def main() -> None:
    with farside.attach() as job, TRACE.open("a", buffering=1) as trace:
        meeting = Meeting(job)
        checkpoint = job.restore()
        first = 0 if checkpoint is None else checkpoint.step
        weights = np.zeros(4) if checkpoint is None else checkpoint.tensors["weights"]
        every = job.checkpoint_interval_steps
        for step in range(first + 1, STEPS + 1):
            meeting.step()
            time.sleep(PACE_S)
            weights += 1
            trace.write(f"{job.attempt} {job.rank} {os.getpid()} {time.monotonic():.6f} {step}\n")
            job.progress(step, weight=float(weights[0]))
            if every is not None and step % every == 0:
                job.save(step, {"weights": weights})
        assert weights[0] == STEPS, f"steps were lost or done twice: {weights[0]} of {STEPS}"


if __name__ == "__main__":
    main()
