"""From a seed that breaks an invariant to the shortest story of it.

A run is made of ingredients: jobs, planned trouble, and each fault that the seed drew. Taking some of them away leaves
the others as they were, so the same invariant is looked for in runs with fewer and fewer of them.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tests.sim.faults import Rates
from tests.sim.loop import SECOND
from tests.sim.settings import Cores, Times
from tests.sim.story import Broken, Line
from tests.sim.workload import small
from tests.sim.world import World

STORM_MS = 600 * SECOND
MOST_RUNS = 250
MOST_LINES = 60
FOLD = "       ...  and more of the same"


@dataclass(frozen=True)
class Outcome:
    """One run of a seed: the world as it was left, and what broke, if anything did."""

    seed: int
    world: World
    broken: Broken | None

    @property
    def ingredients(self) -> tuple[str, ...]:
        """Everything that went wrong or was asked, by name."""
        return tuple(self.world.faults.fired)

    def others(self, about: Sequence[str]) -> set[str]:
        """Jobs of the story that are not the ones concerned."""
        tags = {tag for line in self.world.story.lines for tag in line.tags}
        return {tag for tag in tags if tag.startswith("job ") and tag not in about}

    def lines(self) -> list[Line]:
        """The events that concern what broke, and the trouble of the nodes that they name."""
        story = self.world.story
        about = self.broken.about if self.broken is not None else ()
        if not about:
            return story.lines[-MOST_LINES:]
        nodes = {tag for line in story.about(about) for tag in line.tags}
        found = [line for line in story.lines if set(line.tags) & set(about) or _trouble_of(line, nodes)]
        return found if len(found) <= MOST_LINES else [*found[: MOST_LINES // 3], *found[-2 * MOST_LINES // 3 :]]

    def told(self) -> str:
        """The story as it is printed."""
        parts = [f"seed {self.seed}: {self.broken}"]
        parts.append(f"with {len(self.ingredients)} ingredients: {'; '.join(self.ingredients)}")
        return "\n".join([*parts, *folded(self.lines())])


def folded(lines: Sequence[Line]) -> list[str]:
    """Lines in words; of a row that differ in nothing but numbers, the first and the last."""
    told: list[str] = []
    for place, line in enumerate(lines):
        kind = _kind(line)
        inside = 0 < place < len(lines) - 1 and _kind(lines[place - 1]) == kind == _kind(lines[place + 1])
        if not inside:
            told.append(str(line))
        elif told[-1] != FOLD:
            told.append(FOLD)
    return told


def _kind(line: Line) -> str:
    return re.sub(r"[0-9]+", "0", line.text)


def _trouble_of(line: Line, nodes: Collection[str]) -> bool:
    trouble = line.text.startswith(("--", "inventory")) and "announced itself" not in line.text
    return trouble and bool(set(line.tags) & set(nodes))


def run(
    seed: int,
    cores: Cores | None = None,
    kept: Collection[str] | None = None,
    *,
    rates: Rates | None = None,
    times: Times | None = None,
) -> Outcome:
    """One small world from its seed, with what is `kept` of it."""
    world = World(small(seed), seed, cores=cores, kept=kept, rates=rates, times=times)
    try:
        world.run(STORM_MS)
    except Broken as broken:
        return Outcome(seed, world, broken)
    except AssertionError as error:
        return Outcome(seed, world, Broken("the cores' own assertions hold", str(error)))
    return Outcome(seed, world, None)


def shrink(outcome: Outcome, cores: Cores | None = None) -> Outcome:
    """The run with the fewest ingredients that breaks the same invariant, as far as MOST_RUNS tries find it."""
    assert outcome.broken is not None
    invariant, best = outcome.broken.invariant, outcome

    def still_broken(kept: Sequence[str]) -> bool:
        nonlocal best
        tried = run(outcome.seed, cores, kept)
        same = tried.broken is not None and tried.broken.invariant == invariant
        if same:
            best = tried
        return same

    near = _near(outcome)
    _fewest(near if near and still_broken(near) else list(outcome.ingredients), still_broken)
    return best


def _near(outcome: Outcome) -> list[str]:
    """The ingredients that name the jobs or nodes concerned, or a node where one of the jobs was."""
    about = outcome.broken.about if outcome.broken is not None else ()
    names = {tag for line in outcome.world.story.about(about) for tag in line.tags if tag not in outcome.others(about)}
    words = [re.compile(rf"\b{re.escape(name)}\b") for name in sorted({*names, *about})]
    jobs = [f"job: {name.removeprefix('job ')}" for name in about]
    return [one for one in outcome.ingredients if one in jobs or any(word.search(one) for word in words)]


def _fewest(items: list[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    """Delta debugging: leave out halves, quarters and so on, for as long as that still fails."""
    parts, runs = 2, 0
    while len(items) > 1 and runs < MOST_RUNS:
        size = max(1, len(items) // parts)
        for begin in range(0, len(items), size):
            rest = items[:begin] + items[begin + size :]
            runs += 1
            if fails(rest):
                items, parts = rest, max(parts - 1, 2)
                break
            if runs >= MOST_RUNS:
                return items
        else:
            if size == 1:
                return items
            parts = min(len(items), 2 * parts)
    return items
