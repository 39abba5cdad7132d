"""What can be wrong with telemetry."""


class TelemetryError(Exception):
    """Spans or metrics cannot go where the settings say."""
