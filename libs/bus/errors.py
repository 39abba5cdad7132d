"""What libs.bus raises, and what handlers raise to be understood by it."""

# ruff: noqa: N818 - these names read as sentences where they are raised: raise Refused, raise Problem

from contracts.base import Open
from contracts.requests import ProblemCode


class BusError(Exception):
    """Root of this package's errors."""


class Refused(BusError):
    """Raised by a handler that will never accept this message: it goes to the dead letters with reason `refused`.

    Where a request is served, the answer is the problem `invalid`.
    """


class NotYet(BusError):
    """Raised by a handler that needs what another stream has not told it yet: the message comes again.

    That is no failure. One that came `Policy.max_early` times goes to the dead letters with reason `refused`. Where a
    request is served, the answer is the problem `unavailable`: ask again.
    """


class Problem(BusError):
    """The answer to a request that cannot be served; raised by handlers and, at the other end, by `request`."""

    def __init__(self, code: Open[ProblemCode], message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class NotLeader(BusError):
    """A transaction of a former leader tried to commit; its work is void and the new leader does it again."""


class TooLarge(BusError):
    """A message is above the size that the bus carries; raised where it enters the outbox."""


class NotProvisioned(BusError):
    """A stream or consumer of the registry is not there; `farside provision` makes it."""


class ConnectionClosed(BusError):
    """The connection to the bus has been given up for good."""


class Nested(BusError):
    """A transaction was opened inside another one of the same ledger, which would wait for itself."""
