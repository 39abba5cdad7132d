"""A job on its own: the same script on a laptop, with plain folders in place of agent and store.

In: a folder. Out: `<folder>/progress.jsonl` and `<folder>/checkpoints/<step>.safetensors`, the newest of which is
restored at the next start.
"""

import json
from dataclasses import asdict
from pathlib import Path

from libs.sdk.backend import Point, SavedFile, SaveStatus
from libs.sdk.protocol import JobInfo, RestoreInfo

KEEP_LAST = 3
NOBODY = "00000000-0000-0000-0000-000000000000"


class LocalBackend:
    """One member, no cards, no tenant."""

    def __init__(self, folder: Path, dataset: Path | None, seed: int | None) -> None:
        self._checkpoints = folder / "checkpoints"
        incoming = folder / "incoming"
        for path in (self._checkpoints, incoming):
            path.mkdir(parents=True, exist_ok=True)
        self._progress = folder / "progress.jsonl"
        newest = max(self._checkpoints.glob("*.safetensors"), default=None)
        self._saved = None if newest is None else int(newest.stem)
        self._info = JobInfo(
            job_id=NOBODY,
            name="local",
            tenant="local",
            attempt=1,
            member=0,
            members=1,
            cards=(),
            seed=seed,
            interval_steps=None,
            rendezvous=None,
            dataset=None if dataset is None else str(dataset),
            folder=str(incoming),
            restore=None if newest is None else RestoreInfo(int(newest.stem), str(newest)),
            serial=0,
        )

    @property
    def info(self) -> JobInfo:
        """What the task may know of its job."""
        return self._info

    def progress(self, points: list[Point], *, flush: bool) -> int:
        """Append the points to progress.jsonl."""
        del flush
        with self._progress.open("a") as file:
            file.writelines(json.dumps(asdict(point)) + "\n" for point in points)
        return points[-1].serial if points else 0

    def save(self, saved: SavedFile) -> None:
        """Keep the file with the newest few."""
        source = Path(self._info.folder, saved.file)
        source.replace(self._checkpoints / f"{saved.step:012d}.safetensors")
        self._saved = saved.step
        for old in sorted(self._checkpoints.glob("*.safetensors"))[:-KEEP_LAST]:
            old.unlink()

    def saves(self, wait_s: float) -> SaveStatus:
        """Nothing is ever pending here."""
        del wait_s
        return SaveStatus((), self._saved)

    def ready(self, endpoint: str) -> None:
        """Nobody listens here."""

    def close(self) -> None:
        """Nothing to let go of."""
