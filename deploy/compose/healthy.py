"""Whether the service in this container does its work, from outside its event loop: exit status 0, or 1 and why.

In: the metrics page of the process, which a thread of its own serves, so that it also tells of a loop that is stuck.
Healthy means that the loop came round lately, that the ledger answered it, and that the bus is connected. The page is
read with the standard library's socket alone, in two hundredths of a second of CPU.
"""

import os
import socket
import sys

STALE_S = 15.0
TIMEOUT_S = 4.0
AGE = "farside_loop_age_seconds"
CONNECTED = "farside_bus_connected"
ROWS = "farside_outbox_rows"


def page(port: int) -> str:
    """The metrics of the process that listens on `port`. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode()


def values(text: str) -> dict[str, float]:
    """Each metric without its labels; of several lines of one name, the last."""
    lines = (line for line in text.splitlines() if line.startswith("farside_"))
    return {line.partition("{")[0].split(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def fault(found: dict[str, float]) -> str | None:
    """What keeps the process from its work, in words."""
    if found.get(AGE, STALE_S) >= STALE_S:
        return f"the event loop has not come round for {found[AGE]:.0f} s" if AGE in found else "not started yet"
    if not found.get(CONNECTED):
        return "no connection to the bus"
    return None if ROWS in found else "the ledger does not answer"


def main() -> int:
    """Look once."""
    try:
        words = fault(values(page(int(os.environ["FARSIDE_METRICS_PORT"]))))
    except OSError as error:
        words = f"no metrics: {error}"
    sys.stdout.write(words or "healthy")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
