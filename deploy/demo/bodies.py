"""The four jobs of the demo, as JSON files that any publisher could send."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contracts.jobs import Artefact
from libs.kit.ids import new_id

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits"
TENANT, SMALL_TENANT = "acme", "beta"
GREEDY_RUNTIME_S = 200 * 3600


@dataclass(frozen=True)
class Bodies:
    """Ids of training, inference, batch, and one over its tenant's quota; their files in the order of submission."""

    train: str
    infer: str
    batch: str
    greedy: str
    files: tuple[str, ...]


def write(folder: Path, artefact: Artefact) -> Bodies:
    """Write the jobs of examples/digits/jobs with ids, tenants and the code's artefact."""
    greedy = {"tenant": SMALL_TENANT, "name": "digits-greedy", "max_runtime_s": GREEDY_RUNTIME_S}
    ids = [new_id() for _ in range(4)]
    changes: list[tuple[str, dict[str, Any]]] = [("train", {}), ("serve", {}), ("summarise", {}), ("train", greedy)]
    files = [
        _write(folder, name, {"job_id": job_id, **change}, artefact)
        for job_id, (name, change) in zip(ids, changes, strict=True)
    ]
    return Bodies(*ids, files=tuple(files))


def _write(folder: Path, name: str, changes: dict[str, Any], artefact: Artefact) -> str:
    job: dict[str, Any] = yaml.safe_load((DIGITS / "jobs" / f"{name}.yaml").read_text())
    job |= {"tenant": TENANT, "artefact": artefact.model_dump(mode="json")} | changes
    file = folder / f"{job['name']}.json"
    file.write_text(json.dumps(job, indent=2))
    return str(file)
