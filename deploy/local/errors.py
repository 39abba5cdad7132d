"""What can go wrong with the local stack."""

from pathlib import Path


class StackError(Exception):
    """Root of this package's errors; the message says what to do."""


class PartFailedError(StackError):
    """A part did not come up. Carries the last lines of its log."""

    def __init__(self, part: str, reason: str, log: Path | None = None, tail: tuple[str, ...] = ()) -> None:
        self.part = part
        self.reason = reason
        self.log = log
        self.tail = tail
        super().__init__(self._words())

    def _words(self) -> str:
        head = f"{self.part} did not come up: {self.reason}"
        if self.log is None:
            return head
        if not self.tail:
            return f"{head}\nits log {self.log} has no line of this start"
        lines = "\n".join(f"  {line}" for line in self.tail)
        return f"{head}\nlast lines of {self.log}:\n{lines}"
