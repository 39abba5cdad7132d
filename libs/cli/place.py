"""Find the stack that a command talks to: `--stack`, `FARSIDE_*` variables, or the stack in `var`."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil
from pydantic import SecretStr, ValidationError

from libs.bus.accounts import GUEST_API, tenant_of
from libs.cli.errors import FileError, UnreachableError
from libs.kit.settings import JS_API, ServiceSettings

DEFAULT_DIRECTORY = "var"
STACK_FILE = "stack.json"
START_TOLERANCE_S = 2.0  # the kernel tells the time of boot in whole seconds, and corrects it


@dataclass(frozen=True)
class Place:
    """Where the bus and the object store are, and (for messages) who said so; the directory of a local stack."""

    settings: ServiceSettings
    source: str
    directory: Path | None = None

    @property
    def tenant(self) -> str | None:
        """The tenant whose user this is; None for the operator."""
        return tenant_of(self.settings.nats_url)

    @property
    def api(self) -> str:
        """What the subjects of the JetStream API begin with for this user."""
        usual = self.settings.js_api
        return GUEST_API if self.tenant is not None and usual == JS_API else usual


def locate(stack: Path | None) -> Place:
    """The stack named by `--stack`, else by FARSIDE_NATS_URL, else the one in FARSIDE_DIR or `var`."""
    if stack is None and "FARSIDE_NATS_URL" in os.environ:
        return Place(_from_environment(), "FARSIDE_NATS_URL")
    directory = stack or Path(os.environ.get("FARSIDE_DIR", DEFAULT_DIRECTORY))
    file = directory / STACK_FILE
    try:
        return Place(_from_file(directory, file), str(file), directory)
    except FileNotFoundError:
        msg = (
            f"no stack in {directory}: start one with `farside up`, name another directory with --stack "
            "or FARSIDE_DIR, or set FARSIDE_NATS_URL for a stack that runs elsewhere"
        )
        raise UnreachableError(msg) from None


def _from_environment() -> ServiceSettings:
    try:
        return ServiceSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        msg = f"the variable FARSIDE_{name.removeprefix('FARSIDE_')} is {first['input']!r}: {first['msg']}"
        raise FileError(msg) from None


def _from_file(directory: Path, file: Path) -> ServiceSettings:
    try:
        data = cast("dict[str, Any]", json.loads(file.read_text()))
        if "supervisor" in data and not _runs(data["supervisor"]):
            msg = f"the stack in {directory} is down: `farside up --dir {directory}` starts it"
            raise UnreachableError(msg)
        store = cast("dict[str, str]", data["s3"])
        return ServiceSettings(
            nats_url=data["nats_url"],
            nats_creds=data.get("nats_creds"),
            s3_endpoint=store["endpoint"],
            s3_access_key=store["access_key"],
            s3_secret_key=SecretStr(store["secret_key"]),
            s3_bucket=store["bucket"],
        )
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{file} is damaged ({type(error).__name__}: {error}): `farside down` and `farside up` write it anew"
        raise FileError(msg) from None


def _runs(supervisor: dict[str, Any] | None) -> bool:
    """Whether the process that keeps a local stack up, as its stack.json names it, is there."""
    if supervisor is None:
        return False
    try:
        born = psutil.Process(supervisor["pid"]).create_time()
    except psutil.NoSuchProcess:
        return False
    return abs(born - supervisor["start_time"]) < START_TOLERANCE_S
