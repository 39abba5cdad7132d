"""Train a network on scikit-learn's 1,797 handwritten digits, and survive the machine it runs on.

An ordinary script: `libs.sdk` is used only to find the dataset, report progress, save and restore. Run it as a Farside
job (jobs/train.yaml), or on any machine without Farside:

    FARSIDE_LOCAL_DIR=run FARSIDE_LOCAL_DATASET=digits OPENBLAS_NUM_THREADS=1 python train.py

The order in which threads add up changes the last digits of a sum; one thread gives the same loss every time.

A checkpoint holds all that the next loss depends on: weights, Adam's moments, the order of the data and the place in
it, and the state of the random generator.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from network import Array, Labels, Network
from numpy.typing import NDArray

import libs.sdk as farside

STEPS = int(os.environ.get("DIGITS_STEPS", "1200"))
BATCH = 64
SEED, INTERVAL_STEPS = 7, 200  # where no job file says its own


@dataclass
class Digits:
    """Pixels scaled to 0..1, split once and for all when the dataset was made."""

    train_images: Array
    train_labels: Labels
    test_images: Array
    test_labels: Labels

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the four .npy files of the dataset."""

        def load(name: str) -> NDArray[Any]:
            return np.load(folder / f"{name}.npy", allow_pickle=False)

        return cls(load("train_images") / 16.0, load("train_labels"), load("test_images") / 16.0, load("test_labels"))


@dataclass
class Loader:
    """Walks through the data in an order drawn anew for each pass."""

    order: Labels
    at: int = 0

    def next(self, rng: np.random.Generator) -> Labels:
        """Indexes of the next batch; the ragged end of a pass is left out."""
        if self.at + BATCH > len(self.order):
            self.order = rng.permutation(len(self.order))
            self.at = 0
        self.at += BATCH
        return self.order[self.at - BATCH : self.at]


@dataclass
class Run:
    """All that changes during training."""

    step: int
    network: Network
    loader: Loader
    rng: np.random.Generator

    @classmethod
    def new(cls, seed: int, rows: int) -> Self:
        """The run at step 0."""
        rng = np.random.default_rng(seed)
        return cls(0, Network.new(rng), Loader(rng.permutation(rows)), rng)

    @classmethod
    def load(cls, checkpoint: farside.Checkpoint) -> Self:
        """The run as `save` left it."""
        rng = np.random.default_rng()
        rng.bit_generator.state = checkpoint.extra["rng"]
        loader = Loader(np.array(checkpoint.tensors["order"], dtype=np.int64), int(checkpoint.extra["at"]))
        return cls(checkpoint.step, Network.load(dict(checkpoint.tensors), checkpoint.step), loader, rng)

    def save(self, job: farside.Session) -> None:
        """Hand a copy of everything to Farside; training goes on while it is written."""
        tensors = {**self.network.tensors(), "order": self.loader.order}
        job.save(self.step, tensors, {"rng": self.rng.bit_generator.state, "at": self.loader.at})

    def advance(self, digits: Digits) -> float:
        """One step; returns its loss."""
        rows = self.loader.next(self.rng)
        loss = self.network.train(digits.train_images[rows], digits.train_labels[rows], self.rng)
        self.step += 1
        return loss


def main() -> int:
    """Train to the last step; 0 when done, 143 when told to stop."""
    with farside.attach(seed=SEED) as job:
        digits = Digits.read(job.dataset())
        checkpoint = job.restore()
        run = Run.new(job.seed, len(digits.train_labels)) if checkpoint is None else Run.load(checkpoint)
        print(f"attempt {job.attempt} begins after step {run.step}", flush=True)
        interval = job.checkpoint_interval_steps or INTERVAL_STEPS
        while run.step < STEPS:
            loss = run.advance(digits)
            print(f"step {run.step} loss {loss!r}", flush=True)
            if run.step % interval and run.step < STEPS:
                job.progress(run.step, loss=loss)
                continue
            accuracy = run.network.accuracy(digits.test_images, digits.test_labels)
            job.progress(run.step, loss=loss, accuracy=accuracy)
            print(f"step {run.step} accuracy {accuracy:.4f} on {len(digits.test_labels)} held-out digits", flush=True)
            run.save(job)
            if job.stopping:
                return 143
        job.wait_saved()
    return 0


if __name__ == "__main__":
    sys.exit(main())
