"""The system user under which PostgreSQL runs when the stack itself runs as root."""

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.launch import CAP_DAC_OVERRIDE, CAP_SETPCAP
from libs.kit.retry import delays

NAME = "embedded_postgres"
USERADD_TIMEOUT_S = 30.0
USERADD_TRIES = 6
RETRY_FIRST_S = 0.05
RETRY_CAP_S = 1.0


@dataclass(frozen=True)
class OsUser:
    """A user to become. `keep_dac`: it must pass folders closed to it, and may by one capability kept for that."""

    uid: int
    gid: int
    keep_dac: bool = False


def postgres_user(directory: Path, binaries: Path) -> OsUser | None:
    """Whom PostgreSQL runs as: this very user, or as root the user `embedded_postgres`, made where there is none.

    Raises StackError when that user could not walk to `directory` or `binaries` and nothing can be done about it.
    """
    if os.geteuid() != 0:
        return None
    entry = ensure_user()
    closed = _closed_to(entry, directory) or _closed_to(entry, binaries)
    if closed is not None and not _may_keep_dac():
        msg = (
            f"PostgreSQL refuses to run as root, so it runs as {NAME}, which may not enter {closed}: "
            f"run `chmod o+x {closed}`, or start the stack with --dir in an open folder, or as an ordinary user"
        )
        raise StackError(msg)
    return OsUser(entry.pw_uid, entry.pw_gid, keep_dac=closed is not None)


def ensure_user() -> pwd.struct_passwd:
    """The entry of the user, made where there is none. Raises StackError with what useradd said."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(NAME)
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if useradd is None:
        msg = f"PostgreSQL refuses to run as root and there is no useradd to make the user {NAME}: run as another user"
        raise StackError(msg)
    command = [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", NAME]
    said = ""
    for delay_s in (*delays(RETRY_FIRST_S, RETRY_CAP_S, tries=USERADD_TRIES - 1), 0.0):
        made = subprocess.run(command, check=False, capture_output=True, text=True, timeout=USERADD_TIMEOUT_S)
        said = made.stderr.strip()
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(NAME)  # also when another stack made it meanwhile
        time.sleep(delay_s)  # another stack may hold the lock of /etc/passwd at this moment
    msg = f"PostgreSQL refuses to run as root and {' '.join(command)} failed: {said}"
    raise StackError(msg)


def _closed_to(entry: pwd.struct_passwd, path: Path) -> Path | None:
    real = path.resolve()
    for folder in reversed(real.parents):
        if folder.exists() and not _may_enter(entry, folder.stat()):
            return folder
    inside = real.stat() if real.exists() else None
    return real if inside is not None and not _may_enter(entry, inside) else None


def _may_enter(entry: pwd.struct_passwd, status: os.stat_result) -> bool:
    if status.st_uid == entry.pw_uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == entry.pw_gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _may_keep_dac() -> bool:
    if sys.platform != "linux":
        return False
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return all(effective >> capability & 1 for capability in (CAP_DAC_OVERRIDE, CAP_SETPCAP))
