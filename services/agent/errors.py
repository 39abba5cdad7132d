"""What can go wrong on a node. Each message names the thing, the value and the remedy."""


class AgentError(Exception):
    """Root of this package's errors."""


class InputError(AgentError):
    """Something the job needs cannot be had, and trying again would not help: the attempt fails."""


class TaskRequestError(AgentError):
    """A task asked its agent for something that it cannot have; told to the task."""
