"""What happened, line by line, and the few lines that tell of one job or node."""

from collections.abc import Collection
from dataclasses import dataclass, field


class Broken(AssertionError):  # noqa: N818 - an invariant is broken
    """An invariant does not hold. `about` names the job or the node concerned."""

    def __init__(self, invariant: str, words: str, *about: str) -> None:
        super().__init__(f"{invariant}: {words}")
        self.invariant = invariant
        self.words = words
        self.about = about


@dataclass(frozen=True)
class Line:
    """One thing that happened, and the jobs and nodes that it concerns."""

    ms: int
    text: str
    tags: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.ms / 1000:10.3f}  {self.text}"


@dataclass
class Story:
    """Lines in the order in which they happened; a silent one keeps none."""

    silent: bool = False
    lines: list[Line] = field(default_factory=list[Line])

    def tell(self, ms: int, text: str, *tags: str) -> None:
        """Something happened."""
        if not self.silent:
            self.lines.append(Line(ms, text, tags))

    def about(self, names: Collection[str]) -> list[Line]:
        """The lines that concern any of `names`."""
        wanted = frozenset(names)
        return [line for line in self.lines if wanted & frozenset(line.tags)]
