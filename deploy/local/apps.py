"""Farside's own processes: the services and the agents of the declared nodes."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from contracts.nodes import NodePhase
from contracts.registry import BILLING, SCHEDULER
from deploy.local.bus import Bus
from deploy.local.config import BUCKET, Config
from deploy.local.fleet import RATES_DIR, Node
from deploy.local.part import Part, Phase
from deploy.local.ports import LOOPBACK, metrics_port
from deploy.local.process import Command
from libs.bus.accounts import GUEST_API, node_user
from libs.db import service_dsn

GIB = 1024**3
FOREIGN = ("FARSIDE_", "PG", "AWS_")  # variables that would reach through to settings, asyncpg and boto3
CARD_MODEL = "H200"
CARD_BYTES = 141 * GIB
VERSION = version("farside")


@dataclass(frozen=True)
class Overrides:
    """What differs from the defaults: variables for all of Farside's processes and for single parts, the tenants."""

    env: Mapping[str, str]
    part_env: Mapping[str, Mapping[str, str]]
    tenants: Path


def service(config: Config, name: str, bus: Bus, overrides: Overrides) -> Part:
    """`python -m services.<name>`; up when it answers its status query."""
    env = {
        "FARSIDE_NATS_URL": config.bus_url(name),
        "FARSIDE_PG_DSN": service_dsn(config.pg_dsn, name, config.secrets[name]),
    }
    if name == SCHEDULER:
        env["FARSIDE_TENANTS"] = str(overrides.tenants)
    if name == BILLING:
        env["FARSIDE_RATES"] = str(RATES_DIR)

    async def probe() -> bool:
        return await bus.status(name) is not None

    return Part(
        name=name,
        phase=Phase.SERVICE,
        after=("provision",),
        command=_python(config, name, f"services.{name}", env, overrides),
        probe=probe,
        detail=f"role {name}{_metrics(config, name)}",
        version=VERSION,
    )


def agent(config: Config, node: Node, bus: Bus, overrides: Overrides) -> Part:
    """The agent of a node; up when inventory lists what it announced at this start."""
    cards = [{"model": CARD_MODEL, "memory_bytes": CARD_BYTES}] * node.cards
    env = {
        "FARSIDE_NATS_URL": config.bus_url(node_user(node.name), "leaf" if node.behind_leaf else "nats"),
        "FARSIDE_JS_API": GUEST_API,
        "FARSIDE_NODE": node.name,
        "FARSIDE_TIER": node.tier.value,
        "FARSIDE_ZONE": f"zone-{node.name}" if node.behind_leaf else "zone-central",
        "FARSIDE_STATE_DIR": str(config.node_dir(node.name)),
        "FARSIDE_RUNTIME_DIR": str(config.run_dir / node.name),
        "FARSIDE_DECLARED_CARDS": json.dumps(cards),
        "FARSIDE_NVML": "false",
        "FARSIDE_TIME_SYNC_REQUIRED": "false",  # all nodes are one machine: none is behind another
    }
    announced = _Announced(bus, node.name)
    unit = "card" if node.cards == 1 else "cards"
    way = ", via the leaf" if node.behind_leaf else ""
    return Part(
        name=node.name,
        phase=Phase.AGENT,
        after=("provision", "leaf") if node.behind_leaf else ("provision",),
        command=_python(config, node.name, "services.agent", env, overrides),
        probe=announced.probe,
        detail=f"{node.tier.value}, {node.cards} {unit}{way}{_metrics(config, node.name)}",
        version=VERSION,
        prepare=announced.start,
    )


def _metrics(config: Config, part: str) -> str:
    """Where a part shows its metrics, in words; a node that is not of the usual fleet shows none."""
    port = config.ports.get(metrics_port(part))
    return "" if port is None else f", metrics at {LOOPBACK}:{port}"


class _Announced:
    """Whether inventory knows of this start of an agent: it lists the node with an incarnation not seen before."""

    def __init__(self, bus: Bus, node: str) -> None:
        self._bus = bus
        self._node = node
        self._before: str | None = None

    async def start(self) -> None:
        self._before = await self._bus.announced(self._node) or self._before

    async def probe(self) -> bool:
        if await self._bus.announced(self._node) == self._before:
            return False
        state = await self._bus.node(self._node)
        return state is not None and state.state is NodePhase.READY and state.incarnation != self._before


def _python(config: Config, part: str, module: str, env: Mapping[str, str], overrides: Overrides) -> Command:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    shared = {
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "FARSIDE_S3_ENDPOINT": config.s3_endpoint,
        "FARSIDE_S3_ACCESS_KEY": config.secrets["s3-access"],
        "FARSIDE_S3_SECRET_KEY": config.secrets["s3-secret"],
        "FARSIDE_S3_BUCKET": BUCKET,
        "FARSIDE_VERSION": VERSION,
        "FARSIDE_TRACE_DIR": str(config.traces),
    }
    if metrics_port(part) in config.ports:
        shared["FARSIDE_METRICS_PORT"] = str(config.ports[metrics_port(part)])
    own = overrides.part_env.get(part, {})
    variables = {**inherited, **shared, **env, **overrides.env, **own}
    return Command([sys.executable, "-m", module], variables)
