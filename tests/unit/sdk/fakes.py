"""An agent for the SDK's tests: the protocol over a real Unix socket, in threads, that can end and begin again."""

import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.sdk.protocol import JobInfo, RestoreInfo


def info(folder: Path, *, restore: RestoreInfo | None = None, serial: int = 0) -> JobInfo:
    return JobInfo(
        job_id="00000000-0000-7000-8000-00000000000a",
        name="train",
        tenant="acme",
        attempt=2,
        member=1,
        members=2,
        cards=(0, 1),
        seed=7,
        interval_steps=10,
        rendezvous="127.0.0.1:4001",
        dataset=None,
        folder=str(folder),
        restore=restore,
        serial=serial,
    )


@dataclass
class FakeAgent:
    """Keeps points at every `flush`, or when `keep` is called; notes saves down."""

    path: Path
    job: JobInfo
    kept: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    saves: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pending: list[int] = field(default_factory=list[int])
    endpoints: list[str] = field(default_factory=list[str])
    refuse: str | None = None
    may_save: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_save.set()
        self._held: list[dict[str, Any]] = []
        self._seen = 0
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []

    def start(self) -> "FakeAgent":
        """Listen; what an earlier start held in memory only is forgotten, as after a restart."""
        self.path.unlink(missing_ok=True)
        self._held = []
        self._seen = self.kept[-1]["serial"] if self.kept else 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """End at once, as by SIGKILL."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections = []
        self._listener = None

    @property
    def held(self) -> int:
        """Points that only this start of the agent knows."""
        return len(self._held)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rwb") as stream:
                for line in stream:
                    reply = self._answer(json.loads(line))
                    stream.write(json.dumps(reply).encode() + b"\n")
                    stream.flush()
        except (OSError, ValueError):
            return

    def _answer(self, ask: dict[str, Any]) -> dict[str, Any]:
        if self.refuse == ask["op"]:
            return {"ok": False, "error": "not today"}
        match ask["op"]:
            case "attach":
                return {"ok": True, **self.job.to_json()}
            case "progress":
                return {"ok": True, "serial": self._progress(ask)}
            case "save":
                self.may_save.wait(30)
                self.saves.append(ask)
                return {"ok": True}
            case "saves":
                return {"ok": True, "pending": self.pending, "saved": None}
            case _:
                self.endpoints.append(ask["endpoint"])
                return {"ok": True}

    def _progress(self, ask: dict[str, Any]) -> int:
        with self._lock:
            for point in ask["points"]:
                if point["serial"] > self._seen:
                    self._seen = point["serial"]
                    self._held.append(point)
            if ask["flush"]:
                self.kept += self._held
                self._held = []
            return self.kept[-1]["serial"] if self.kept else 0
