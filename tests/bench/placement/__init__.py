"""Where jobs go: how many placements a second the scheduler's `decide` makes, how that grows, and how well it packs.

`plc_openb` fills a fleet with an openb trace, `plc_10k` places on ten thousand nodes, `cycle` is one decision over ten
thousand nodes that are nine tenths full with a hundred thousand jobs waiting. `unallocated` is what stays of the cards
at 130 per cent of arrived demand. Peers are the policies `fgd` and `bestfit` in the same rounds.

Node and task files of the openb format are taken by `--nodes` and `--pods`, else from the public data, else made up.
"""

from pathlib import Path

from tests.bench.frame import Case
from tests.bench.placement import cases
from tests.bench.placement.fleets import load, made_up

FILES = ("nodes", "pods")


async def run(*, quick: bool, nodes: Path | None = None, pods: Path | None = None) -> dict[str, Case]:
    """Every case."""
    loaded = made_up() if quick and nodes is None and pods is None else load(nodes, pods)
    return await cases.run(loaded, cases.QUICK if quick else cases.FULL)
