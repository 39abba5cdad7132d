"""Which checkpoints lead to the present, and which of them may go.

The lineage of an attempt is its own commits, newest first, then those of the attempt it was restored from, up to the
step it was restored at, and so on back. A commit outside the lineage is a dead branch, however high its step.
"""

from collections.abc import Collection, Sequence

from services.checkpoint.core.model import Checkpoint, Expire, Grant, Phase


def lineage(committed: Sequence[Checkpoint], grants: Collection[Grant]) -> list[Checkpoint]:
    """Committed checkpoints that led to the newest attempt, newest first."""
    assert all(checkpoint.phase is Phase.COMMITTED for checkpoint in committed)
    by_attempt = {grant.attempt: grant for grant in grants}
    newest_first = sorted(committed, key=lambda checkpoint: checkpoint.place, reverse=True)
    attempt: int | None = max((*by_attempt, *(checkpoint.attempt for checkpoint in committed)), default=None)
    upto: int | None = None
    line: list[Checkpoint] = []
    while attempt is not None:
        own = [one for one in newest_first if one.attempt == attempt and (upto is None or one.step <= upto)]
        line.extend(own)
        grant = by_attempt.get(attempt)
        if grant is not None:
            attempt, upto = grant.from_attempt, grant.step
        else:
            upto = own[-1].step if own else upto
            attempt = max((one.attempt for one in newest_first if one.attempt < attempt), default=None)
    return line


def expire(committed: Sequence[Checkpoint], grants: Collection[Grant], keep_last: int) -> list[Expire]:
    """What may go once the newest checkpoint is committed: all but the `keep_last` newest of the lineage.

    What the newest attempt was granted stays until that attempt has committed something itself: only then have all its
    members restored.
    """
    assert keep_last >= 1, f"keep_last {keep_last} would keep nothing"
    line = lineage(committed, grants)
    kept = {one.place for one in line[:keep_last]}
    newest = max(grants, key=lambda grant: grant.attempt, default=None)
    if newest is not None and newest.step is not None and newest.from_attempt is not None:
        restored = any(one.attempt >= newest.attempt for one in committed)
        if not restored:
            kept.add((newest.from_attempt, newest.step))
    return [Expire(one) for one in sorted(committed, key=lambda one: one.place) if one.place not in kept]
