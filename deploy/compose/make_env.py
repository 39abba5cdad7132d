"""Write `.env` beside docker-compose.yml: a fresh secret for every variable that it requires (`${NAME:?...}`).

    python3 deploy/compose/make_env.py

The file is the owner's alone (mode 0600) and ignored by git and by image builds. What is in it stays; what is missing
is added. Needs the standard library only. A secret begins with a letter, for nats-server reads digits as a number.
"""

import os
import re
import secrets
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIRED = re.compile(r"\$\{(\w+):\?")


def required(compose: str) -> list[str]:
    """The variables without which Compose does not start, in the order in which the file names them."""
    return list(dict.fromkeys(REQUIRED.findall(compose)))


def filled(names: list[str], text: str) -> str:
    """The text of an environment file with a secret added for each name that it lacks."""
    known = {line.partition("=")[0].strip() for line in text.splitlines()}
    added = [f"{name}=s{secrets.token_hex(16)}\n" for name in names if name not in known]
    return text + ("\n" if text and not text.endswith("\n") else "") + "".join(added)


def main(file: Path) -> int:
    """Fill the file and say where it is."""
    names = required((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8") as env:
        os.fchmod(env.fileno(), 0o600)
        text = filled(names, env.read())
        env.seek(0)
        env.write(text)
    sys.stdout.write(f"{len(names)} secrets are in {file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".env"))
