"""Addresses kept free for the rendezvous of gangs.

In: an attempt that was offered. Out: `host:port`, bound by the agent until the task starts, so that no two attempts of
the node are promised the same one.
"""

import socket

from services.agent.core.model import AttemptKey


class Ports:
    """Holds one port for each attempt that has not started."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._held: dict[AttemptKey, socket.socket] = {}

    def hold(self, key: AttemptKey, endpoint: str | None = None) -> str:
        """A free address, or `endpoint` again after a restart of the agent (it may have been taken since)."""
        port = 0 if endpoint is None else int(endpoint.rpartition(":")[2])
        held = socket.socket(socket.AF_INET6 if ":" in self._address else socket.AF_INET)
        try:
            held.bind((self._address, port))
        except OSError:
            held.close()
            if endpoint is None:
                raise
            return endpoint
        self.release(key)
        self._held[key] = held
        return f"{self._address}:{held.getsockname()[1]}"

    def release(self, key: AttemptKey) -> None:
        """Let go of the attempt's address; the task binds it now."""
        held = self._held.pop(key, None)
        if held is not None:
            held.close()
