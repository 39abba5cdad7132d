"""Checkpoint files: one safetensors file a member, with the state that is no tensor in its metadata.

In: named numpy arrays and a JSON-like `extra` (random generators, loader position). Out: a file, its SHA-256 and size,
and back.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import numpy as safetensors_numpy

from libs.sdk.errors import SaveError
from libs.sdk.protocol import METADATA_KEY

CHUNK_BYTES = 1024 * 1024
NO_NUMBERS = frozenset("OUSMm")

Array = NDArray[Any]
# safetensors ships no types that a strict checker accepts
_save_file = cast("Any", safetensors_numpy.save_file)
_open: Any = safetensors.safe_open


@dataclass(frozen=True)
class Checkpoint:
    """What was saved at `step`: arrays by name, and the JSON-like rest."""

    step: int
    tensors: dict[str, Array]
    extra: dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A checkpoint file on disk."""

    path: Path
    sha256: str
    size_bytes: int


def copied(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return copies in C order: what the caller changes afterwards does not reach the checkpoint.

    Raises SaveError for what is no array of numbers.
    """
    copies = {name: np.array(value, copy=True, order="C") for name, value in tensors.items()}
    for name, value in copies.items():
        if value.dtype.kind in NO_NUMBERS:
            msg = f"tensor {name!r} has dtype {value.dtype}: tensors hold numbers, the rest goes into `extra`"
            raise SaveError(msg)
    return copies


def encoded(step: int, extra: Mapping[str, Any]) -> str:
    """Return `extra` and the step as JSON text. Raises SaveError for a value that JSON has no word for."""
    try:
        return json.dumps({"step": step, "extra": dict(extra)}, default=_plain)
    except (TypeError, ValueError) as error:
        msg = f"extra of step {step} cannot be saved: {error}; use numbers, text, lists and dicts, arrays go in tensors"
        raise SaveError(msg) from error


def write(path: Path, tensors: dict[str, Array], metadata: str) -> Written:
    """Write the file whole or not at all. Raises OSError when the disk does not take it."""
    part = path.with_name(f".{path.name}.part")
    _save_file(tensors, part, metadata={METADATA_KEY: metadata})
    sha256, size_bytes = _digest(part)
    part.replace(path)
    return Written(path, sha256, size_bytes)


def read(path: Path) -> Checkpoint:
    """Read a file of `write`."""
    with _open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()[METADATA_KEY])
        names: list[str] = list(file.keys())
        tensors: dict[str, Array] = {name: file.get_tensor(name) for name in names}
    return Checkpoint(metadata["step"], tensors, metadata["extra"])


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return cast("object", value.tolist())
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


def _digest(path: Path) -> tuple[str, int]:
    hasher, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return hasher.hexdigest(), size_bytes
