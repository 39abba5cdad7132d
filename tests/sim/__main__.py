"""Run the simulator: `python -m tests.sim [--seeds 1-200] | [--nodes N --jobs M]`.

Progress and stories go to standard error, and one JSON object to standard output. The exit code is 1 when an invariant
is broken, and 2 when the options are wrong.
"""

import argparse
import json
import re
import sys
from collections import Counter
from time import process_time
from typing import Any

from tests.options import Options, whole
from tests.sim.large import LargeRun, Size
from tests.sim.shrink import run, shrink

EVERY = 20


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = Options(prog="just sim", description=__doc__)
    parser.add_argument(
        "--seeds", default="1-200", type=span, help="small worlds with much trouble, one a seed: 7 or 1-200"
    )
    parser.add_argument("--nodes", type=whole(1, 1_000_000), default=0, help="one large world of so many nodes instead")
    parser.add_argument("--jobs", type=whole(1, 100_000_000), default=100_000, help="jobs of the large world")
    parser.add_argument("--seed", type=whole(0, 2**63 - 1), default=1, help="seed of the large world")
    parser.add_argument("--load", type=share, default=0.85, help="cards asked for, as a share of those there are")
    options = parser.parse_args(arguments)
    if options.nodes:
        size = Size(options.nodes, options.jobs, options.seed, options.load)
        found = LargeRun(size, _progress).run()
    else:
        found = _seeds(*options.seeds)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0 if found["broken"] == [] else 1


def _progress(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def share(said: str) -> float:
    """A load above nothing."""
    if re.fullmatch(r"[0-9]{0,3}\.?[0-9]{1,9}", said) is None or float(said) <= 0:
        msg = f"{said!r} is no share of the cards: give a number above 0, such as 0.85"
        raise argparse.ArgumentTypeError(msg)
    return float(said)


def span(said: str) -> tuple[int, int]:
    """`7` or `1-200` as the first seed and the last; none at all would hold for want of a world."""
    first, dash, last = said.partition("-")
    if not first.isdecimal() or not (last if dash else first).isdecimal():
        msg = f"{said!r} is no seed and no range: give one seed (7) or a range (1-200)"
        raise argparse.ArgumentTypeError(msg)
    found = int(first), int(last or first)
    if found[0] > found[1]:
        msg = f"{said!r} has no seed: ranges go upwards ({found[1]}-{found[0]})"
        raise argparse.ArgumentTypeError(msg)
    return found


def _seeds(first: int, last: int) -> dict[str, Any]:
    """Small worlds; of each that breaks, the shortest story."""
    checked, ended, faults = Counter[str](), Counter[str](), Counter[str]()
    sums = Counter[str]()
    broken: list[str] = []
    began = process_time()
    for seed in range(first, last + 1):
        outcome = run(seed)
        world = outcome.world
        checked += world.truth.checked
        ended += world.truth.ended
        faults.update(name.partition(":")[0] for name in outcome.ingredients)
        sums.update(preemptions=world.truth.preemptions, plans=world.cycle.plans, stale=world.cycle.stale)
        if outcome.broken is not None:
            story = shrink(outcome).told()
            _progress(story)
            broken.append(story)
        if (seed - first + 1) % EVERY == 0:
            _progress(f"seed {seed}: {sum(ended.values())} jobs ended, {len(broken)} seeds broken")
    return {
        "seeds": [first, last],
        "broken": broken,
        "jobs": dict(sorted(ended.items())),
        "faults": dict(sorted(faults.items())),
        **sums,
        "invariants": dict(sorted(checked.items())),
        "cpu_s": round(process_time() - began, 1),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
