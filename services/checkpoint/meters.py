"""What the service counts for its metrics: how saves end, and the bytes of those that became checkpoints."""

from libs.telemetry.metrics import counter

COMMITTED = counter("farside.checkpoint.committed", "{checkpoint}", "Checkpoints committed.")
COMMITTED_BYTES = counter("farside.checkpoint.committed_bytes", "By", "Bytes of the checkpoints committed.")
FAILED = counter("farside.checkpoint.failed", "{checkpoint}", "Failures of saves and checkpoints told, by cause.")
