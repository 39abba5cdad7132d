"""Become a part of the stack: tie this process to its supervisor's life, change user, execute the command.

In: `--death-signal=N --parent=PID [--user=UID:GID] [--keep-dac] -- COMMAND ...`. Runs as a plain script on the standard
library alone (`python -I -S launch.py`), because every part starts through it. PostgreSQL refuses to run as root; where
the stack's folder or the installation lies below a folder closed to its user (a home folder of mode 0700),
`--keep-dac` leaves it the one capability that passes folder permissions.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAP_SETPCAP = 8
CAPABILITY_VERSION_3 = 0x20080522
ORPHANED = 125


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, *values: int) -> None:
    arguments = (*values, 0, 0, 0, 0)[:4]
    if _libc().prctl(option, *(ctypes.c_ulong(value) for value in arguments)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} {values}")


def _keep_only_dac() -> None:
    bit = 1 << CAP_DAC_OVERRIDE
    header = _CapHeader(CAPABILITY_VERSION_3, 0)
    data = (_CapData * 2)(_CapData(bit, bit, bit), _CapData(0, 0, 0))
    if _libc().capset(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), "capset CAP_DAC_OVERRIDE")
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE)


def _change_user(user: str, *, keep_dac: bool) -> None:
    uid, gid = (int(number) for number in user.split(":"))
    if keep_dac:  # without this bit, access(2) would leave the capability out of account, and PostgreSQL asks it
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if keep_dac:
        _keep_only_dac()


def main(arguments: list[str]) -> None:
    """Parse by hand (argparse costs more than all the rest), then do as the module's docstring says."""
    split = arguments.index("--")
    words = (word.removeprefix("--").partition("=") for word in arguments[:split])
    options = {name: value for name, _, value in words}
    command = arguments[split + 1 :]
    if "user" in options:
        _change_user(options["user"], keep_dac="keep-dac" in options)
    if sys.platform == "linux":
        _prctl(PR_SET_PDEATHSIG, int(options["death-signal"]))
        if os.getppid() != int(options["parent"]):
            sys.exit(ORPHANED)
    os.execvp(command[0], command)  # noqa: S606 - this is what it is for; the supervisor built the vector


if __name__ == "__main__":
    main(sys.argv[1:])
