"""Write the users of the bus for docker-compose.yml anew: `python -m deploy.compose.accounts`.

The files are those of `farside accounts` for the nodes and tenants of the local stack; they hold no secret.
"""

from collections.abc import Mapping
from pathlib import Path

from deploy.local.fleet import NODES, TENANTS_DIR
from libs.bus.accounts import hub_accounts, leaf_accounts

HERE = Path(__file__).parent


def files() -> Mapping[Path, str]:
    """What the hub's and the leaf's file have to say."""
    nodes, behind = ([node.name for node in NODES if node.behind_leaf or not leaf] for leaf in (False, True))
    tenants = sorted(path.stem for path in TENANTS_DIR.glob("*.yaml"))
    return {
        HERE / "accounts.conf": hub_accounts(nodes, tenants),
        HERE / "leaf_accounts.conf": leaf_accounts(behind),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
