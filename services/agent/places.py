"""Where an agent keeps what: folders of attempts, the cache, and the sockets, whose paths must be short."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from services.agent.core.model import AttemptKey
from services.agent.settings import AgentSettings

DATABASE = "agent.db"
LEASE = "lease.json"
ATTEMPTS = "attempts"
WORK = "work"
CHECKPOINTS = "ckpt"
RESTORE = "restore"
TEMPORARY = "tmp"
DIGEST_CHARS = 16


class Places:
    """All paths of one agent."""

    def __init__(self, settings: AgentSettings) -> None:
        self.state = settings.state_dir.absolute()
        self.database = self.state / DATABASE
        self.lease = self.state / LEASE
        self.attempts = self.state / ATTEMPTS
        self.cache = self.state / "cache"
        base = settings.runtime_dir or Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        self.sockets = base / f"farside-{os.getuid()}-{_short(str(self.state))}"

    def make(self) -> None:
        """Make the folders, for this user alone. Raises PermissionError when somebody else holds the socket folder."""
        for path in (self.state, self.attempts, self.cache):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = self.sockets.lstat()
        if found.st_uid != os.getuid() or self.sockets.is_symlink():
            msg = (
                f"socket folder {self.sockets} belongs to user {found.st_uid}: set FARSIDE_RUNTIME_DIR to one of yours"
            )
            raise PermissionError(msg)
        self.sockets.chmod(0o700)

    def leave(self) -> None:
        """Remove the socket folder, unless attempts go on."""
        with suppress(OSError):
            self.sockets.rmdir()

    def folder(self, key: AttemptKey) -> Path:
        """The folder of one attempt."""
        return self.attempts / key.job_id / f"{key.attempt}-{key.member}"

    def socket(self, key: AttemptKey) -> Path:
        """The socket of one attempt; the same after a restart of the agent."""
        return self.sockets / f"{_short(f'{key.job_id}/{key.attempt}/{key.member}')}.sock"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]
