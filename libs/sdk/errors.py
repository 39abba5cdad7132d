"""What can go wrong for a job that uses the SDK. Each message names the thing, the value and the remedy."""


class SdkError(Exception):
    """Root of this package's errors."""


class LinkError(SdkError):
    """The agent did not answer for longer than the caller would wait."""


class RefusedError(SdkError):
    """The agent answered, and refused."""


class SaveError(SdkError):
    """A checkpoint could not be written or handed over."""
