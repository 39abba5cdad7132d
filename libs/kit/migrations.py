"""Migration files: numbered SQL, forward only, read by every ledger in the same way.

In: the folder `migrations` of a package, files named `NNNN_pre_what.sql` or `NNNN_post_what.sql` (before or after a
rolling deploy). Out: their text in the order of their numbers, with digests.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

FILE_PATTERN = re.compile(r"^(\d{4})_(pre|post)_[a-z0-9_]+\.sql$")


class MigrationError(Exception):
    """The schema and the migration files disagree; the message names the file and the remedy."""


@dataclass(frozen=True)
class Migration:
    """One file of a package."""

    package: str
    file: str
    sql: str

    @property
    def sha256(self) -> str:
        """Digest of the text: an applied file must never change."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read_migrations(package: str) -> list[Migration]:
    """The migrations of `package` in the order of their numbers; a misnamed file or a number used twice raises."""
    folder = resources.files(package) / "migrations"
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    seen: dict[str, str] = {}
    for name in names:
        match = FILE_PATTERN.match(name)
        if match is None:
            msg = f"migration {package}/{name}: name it NNNN_pre_what.sql or NNNN_post_what.sql"
            raise MigrationError(msg)
        if match[1] in seen:
            msg = f"migrations {seen[match[1]]} and {name} of {package} share number {match[1]}: renumber one"
            raise MigrationError(msg)
        seen[match[1]] = name
    return [Migration(package, name, (folder / name).read_text()) for name in names]
