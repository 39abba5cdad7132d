"""A restore is opened: whether this attempt may start, and from what.

In: the job's checkpoints and grants, the request. Out: who is fenced off, what to try in which order, and why not.
"""

from collections.abc import Collection, Sequence

from contracts.attempts import Binding
from services.checkpoint.core.lineage import lineage
from services.checkpoint.core.model import Checkpoint, Fail, Grant, Phase
from services.checkpoint.core.saving import fenced


def refuse_old(attempt: int, fence: int) -> str | None:
    """Why an attempt may not restore at all, or None."""
    if attempt >= fence:
        return None
    return f"attempt {attempt} is fenced off: attempt {fence} has taken the job over, this one must end"


def overtaken(checkpoints: Sequence[Checkpoint], fence: int) -> list[Fail]:
    """Saves of older attempts that were not complete when the fence was raised."""
    return [
        fenced(checkpoint, fence)
        for checkpoint in checkpoints
        if checkpoint.phase is Phase.COLLECTING and checkpoint.attempt < fence
    ]


def candidates(checkpoints: Sequence[Checkpoint], grants: Collection[Grant]) -> list[Checkpoint]:
    """What a new attempt may start from, best first."""
    return lineage([one for one in checkpoints if one.phase is Phase.COMMITTED], grants)


def mismatch(checkpoint: Checkpoint, binding: Binding, members: int) -> str | None:
    """Why an attempt bound like this may not go on from `checkpoint`, or None."""
    saved, asked = checkpoint.binding, binding
    pairs = (
        ("dataset version", _dataset(saved), _dataset(asked)),
        ("code version", saved.code_version or "none", asked.code_version or "none"),
        ("seed", _seed(saved), _seed(asked)),
        ("number of members", str(checkpoint.members), str(members)),
    )
    differing = [f"{what} was {old}, is now {new}" for what, old, new in pairs if old != new]
    if not differing:
        return None
    return (
        f"checkpoint of step {checkpoint.step} (attempt {checkpoint.attempt}) does not fit this attempt: "
        f"{'; '.join(differing)}. Submit the job as it was, or as a new job without that checkpoint"
    )


def _dataset(binding: Binding) -> str:
    return "none" if binding.dataset is None else f"{binding.dataset.name}:{binding.dataset.version}"


def _seed(binding: Binding) -> str:
    return "none" if binding.seed is None else str(binding.seed)
