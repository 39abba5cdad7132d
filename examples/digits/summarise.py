"""Summarise the digits for a page of statistics: the batch job of the demo, small enough for an idle remote node."""

import json

import numpy as np

import libs.sdk as farside

SHARE = 0.9


def main() -> None:
    """Count the digits, measure their ink and how many directions hold most of their variance, and report it."""
    with farside.attach() as job:
        folder = job.dataset()
        images, labels = np.load(folder / "train_images.npy"), np.load(folder / "train_labels.npy")
        for digit in range(10):
            chosen = images[labels == digit]
            job.progress(digit + 1, count=float(len(chosen)), mean_ink=float(chosen.mean()))
        variances = np.linalg.svd(images - images.mean(axis=0), compute_uv=False) ** 2
        directions = int((variances.cumsum() / variances.sum() < SHARE).sum()) + 1
        print(json.dumps({"digits": len(labels), "share_of_variance": SHARE, "directions": directions}), flush=True)


if __name__ == "__main__":
    main()
