"""docker-compose.yml and what lies beside it: read by every Compose, in step with the local stack, without a secret."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.registry import SERVICES
from deploy.compose import accounts, make_env
from deploy.local.fleet import NODES, TENANTS_DIR
from tests.compose.engine import ROOT, composes

FILES = ("docker-compose.yml", "deploy/stand-ins/compose.yml")
SERVERS = ("hub", "leaf", "postgres", "seaweed")
TENANTS = sorted(path.stem for path in TENANTS_DIR.glob("*.yaml"))
NAMES = [node.name for node in NODES]


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The services of the file, by name."""
    return yaml.safe_load((ROOT / FILES[0]).read_text())["services"]


def test_the_parts_are_those_of_the_local_stack(services: dict[str, dict[str, Any]]) -> None:
    assert sorted(services) == sorted((*SERVERS, "provision", *SERVICES, *NAMES, "cli"))
    told = services["provision"]["environment"]
    assert (told["FARSIDE_NODES"].split(), told["FARSIDE_TENANTS"].split()) == (NAMES, TENANTS)
    for node in NODES:
        environment = services[node.name]["environment"]
        assert environment["FARSIDE_TIER"] == node.tier
        assert len(yaml.safe_load(environment["FARSIDE_DECLARED_CARDS"])) == node.cards
        assert ("leaf" in environment["FARSIDE_NATS_URL"]) == node.behind_leaf


def test_the_accounts_are_as_the_registry_says() -> None:
    for file, text in accounts.files().items():
        assert file.read_text() == text, f"{file.name} is old: just contracts"


def test_ports_are_published_on_the_loopback_alone(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_has_a_default(services: dict[str, dict[str, Any]]) -> None:
    secret = ("PASSWORD", "SECRET", "ACCESS_KEY")
    values = [
        value
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if any(word in name for word in secret) or "://" in str(value).partition("@")[0]
    ]
    stores = [value for value in values if "@" in value or "://" not in value]
    assert len(stores) > len(SERVICES)
    assert all(":?run python3 deploy/compose/make_env.py}" in value for value in stores)


def test_agents_are_on_no_network_of_the_control_plane(services: dict[str, dict[str, Any]]) -> None:
    networks = {name: set(services[name]["networks"]) for name in services}
    for node in NODES:
        assert networks[node.name] == {"edge" if node.behind_leaf else "central", "data"}
    assert networks["leaf"] == {"control", "edge"}
    assert networks["postgres"] == {"control"}
    assert all({"control", "management"} <= networks[service] for service in SERVICES)


def test_fresh_secrets_are_the_owners_alone_and_stay(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    script = [sys.executable, make_env.__file__, str(file)]
    subprocess.run(script, check=True, capture_output=True)
    first = file.read_text()
    subprocess.run(script, check=True, capture_output=True)
    assert file.read_text() == first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secrets = dict(line.split("=", 1) for line in first.splitlines())
    assert list(secrets) == make_env.required((ROOT / FILES[0]).read_text())
    assert len(set(secrets.values())) == len(secrets)
    assert all(value[0].isalpha() and len(value) > 32 for value in secrets.values())


@pytest.mark.compose
def test_every_compose_reads_the_files(tmp_path: Path) -> None:
    if not composes():
        pytest.skip("no Compose: neither `docker compose` nor `docker-compose`")
    file = tmp_path / ".env"
    subprocess.run([sys.executable, make_env.__file__, str(file)], check=True, capture_output=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FARSIDE_", "COMPOSE_"))}
    for compose in composes():
        command = [*compose, "--env-file", str(file), "-f", FILES[0], "-f", FILES[1], "config"]
        done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "farside/stand-in-nats" in done.stdout
