"""Write scikit-learn's 1,797 handwritten digits as the four .npy files that train.py and serve.py read.

    python examples/digits/dataset.py digits
    farside dataset put digits --name digits --version v1

The split into 1,437 digits for training and 360 held out is drawn from a fixed seed: the files are the same everywhere.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

HELD_OUT = 360
SPLIT_SEED = 1797


def write(folder: Path) -> list[Path]:
    """Write the dataset into `folder` (made if need be) and return its files."""
    load: Any = datasets.load_digits  # scikit-learn ships no types
    digits = load()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(digits.target))
    images: NDArray[np.float64] = digits.data[order]
    labels: NDArray[np.int64] = digits.target[order].astype(np.int64)
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {
        "train_images": images[HELD_OUT:],
        "train_labels": labels[HELD_OUT:],
        "test_images": images[:HELD_OUT],
        "test_labels": labels[:HELD_OUT],
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return sorted(folder.glob("*.npy"))


if __name__ == "__main__":
    for path in write(Path(sys.argv[1] if len(sys.argv) > 1 else "digits")):
        sys.stdout.write(f"{path}\n")
