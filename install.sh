#!/bin/sh
# Makes .venv beside this file and puts Farside with its tools into it, at the versions in requirements.lock.
#
# Needs Python 3.11 or newer and nothing else: no root, no Docker, no python3-venv and no pip of the system's own. Debian
# and Ubuntu take ensurepip out of their python3, so that `python3 -m venv` stops half-way: the pip in deploy/install
# (unchanged from the package index, its digest below) does ensurepip's part on every system alike.
# All else is downloaded from the package index that pip is set to. Run again, it brings .venv up to date.
set -eu
cd "$(dirname "$0")"

pip_wheel=deploy/install/pip-26.3-py3-none-any.whl
pip_sha256=f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13
venv=.venv

say() { printf 'install: %s\n' "$*" >&2; }

find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    say "no Python 3.11 or newer with its venv module on PATH (python3 is: $(python3 --version 2>&1 || true))"
    say "install one (Debian, Ubuntu: python3; macOS: any of the usual ways) and run this again"
    exit 1
}

if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
    python=$(find_python)
    say "making $venv with $("$python" --version)"
    "$python" -m venv --without-pip --clear "$venv"
    "$venv/bin/python" - "$pip_wheel" "$pip_sha256" <<'PYTHON'
import hashlib, pathlib, sys
found = hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).hexdigest()
if found != sys.argv[2]:
    sys.exit(f"install: {sys.argv[1]} has the digest {found}, not {sys.argv[2]}: check it out anew")
PYTHON
    "$venv/bin/python" "$pip_wheel/pip" --disable-pip-version-check install --quiet --no-index --no-deps "$pip_wheel"
fi

say "installing the locked versions into $venv (some 300 MB the first time)"
"$venv/bin/python" -m pip --disable-pip-version-check install -qq --constraint requirements.lock --editable '.[dev]'
say "done: . $venv/bin/activate gives farside and just"
