"""What can go wrong with an object. Each message names the thing, the value and the remedy."""


class ObjectsError(Exception):
    """Root of this package's errors."""


class MissingError(ObjectsError):
    """The object is not there, and the store said so in words."""


class DamagedError(ObjectsError):
    """The object is there, but its bytes are not those that were promised."""


class ChangedError(ObjectsError):
    """The object or file became another one while it was read or written."""


class RefusedError(ObjectsError):
    """The request can never succeed as it stands: a bad name, a missing right, a missing bucket."""


class UnavailableError(ObjectsError):
    """The store did not answer, or answered that it cannot now; the same request may succeed later."""
