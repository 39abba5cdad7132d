"""What the SDK and the agent say to each other over the attempt's Unix socket.

One request a line as JSON, answered by one line, in order: `{"op": "attach"}`. A line is at most `MAX_LINE_BYTES`; bulk
goes through files in the attempt's directory. A reply is `{"ok": true, ...}` or `{"ok": false, "error": "..."}`.

    attach                                                     -> the fields of `JobInfo`
    progress points=[{serial, step, metrics}, ...] flush=bool  -> serial: the newest one that is kept for good
    save step file sha256 size_bytes stall_ms write_ms         -> nothing, once the agent has noted it down
    saves wait_s                                               -> pending: steps under way; saved: newest in the store
    ready endpoint                                             -> nothing
"""

from dataclasses import asdict, dataclass
from typing import Any

MAX_LINE_BYTES = 256 * 1024
SOCKET_ENV = "FARSIDE_SOCKET"
LOCAL_DIR_ENV = "FARSIDE_LOCAL_DIR"
DATASET_DIR_ENV = "FARSIDE_LOCAL_DATASET"
METADATA_KEY = "farside"

ATTACH = "attach"
PROGRESS = "progress"
SAVE = "save"
SAVES = "saves"
READY = "ready"


@dataclass(frozen=True)
class RestoreInfo:
    """The checkpoint to start from: `file` is this member's shard, already verified."""

    step: int
    file: str


@dataclass(frozen=True)
class JobInfo:
    """What a task may know of its job. `folder` is where the task puts checkpoint files for the agent to take."""

    job_id: str
    name: str
    tenant: str
    attempt: int
    member: int
    members: int
    cards: tuple[int, ...]
    seed: int | None
    interval_steps: int | None
    rendezvous: str | None
    dataset: str | None
    folder: str
    restore: RestoreInfo | None
    serial: int

    def to_json(self) -> dict[str, Any]:
        """Return the reply to `attach`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "JobInfo":
        """Read the reply to `attach`; fields of a newer agent are passed over."""
        known = {name: data[name] for name in cls.__dataclass_fields__}
        restore = known["restore"]
        known["restore"] = None if restore is None else RestoreInfo(restore["step"], restore["file"])
        known["cards"] = tuple(known["cards"])
        return cls(**known)
