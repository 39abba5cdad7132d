"""The example files: contracts/examples/<message or request id>/{good,bad}-<name>.json.

Good ones hold `subject`, `body` and, for messages, `headers`, for requests, `reply`. Bad ones say `why` in words, the
dead letter's `reason`, and `at` which place (dotted) it is refused; bytes that are no JSON stand in `data_base64`.
"""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "contracts" / "examples"


@dataclass(frozen=True)
class Example:
    """One file. `data` is the body as it travels."""

    id: str
    name: str
    subject: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])
    reply: bytes | None = None
    why: str = ""
    reason: str = ""
    at: str = ""

    @property
    def good(self) -> bool:
        """Whether it is one that every reader takes."""
        return self.name.startswith("good-")

    def __str__(self) -> str:
        return f"{self.id}/{self.name}"


def parse(id_: str, name: str, text: str) -> Example:
    """Read the text of one example file."""
    content = cast("dict[str, object]", json.loads(text))
    raw = content.get("data_base64")
    data = base64.b64decode(raw) if isinstance(raw, str) else json.dumps(content["body"]).encode()
    words = cast("dict[str, str]", {part: content[part] for part in ("why", "reason", "at") if part in content})
    return Example(
        id=id_,
        name=name,
        subject=cast("str", content["subject"]),
        data=data,
        headers=cast("dict[str, str]", content.get("headers", {})),
        reply=json.dumps(content["reply"]).encode() if "reply" in content else None,
        **words,
    )


def load() -> list[Example]:
    """Every example on disk, in order."""
    paths = sorted(FOLDER.glob("*/*.json"))
    return [parse(path.parent.name, path.stem, path.read_text(encoding="utf-8")) for path in paths]


ALL = load()
GOOD = [example for example in ALL if example.good]
BAD = [example for example in ALL if not example.good]
