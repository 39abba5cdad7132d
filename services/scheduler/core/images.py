"""Images: which a tenant may run, and what a reference stands for.

A reference stands for the code commit and the dataset version that the first job stated which used it; a job that
states others is refused, since the tag would no longer say what ran.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from contracts.base import Reason
from contracts.jobs import DatasetRef, Image, JobSpec
from services.scheduler.core import words


@dataclass(frozen=True)
class Bound:
    """What a reference stands for since `job_id`; None where no job has said."""

    job_id: str
    commit: str | None = None
    dataset: DatasetRef | None = None


def refusal(spec: JobSpec, listed: tuple[str, ...] | None, bound: Bound | None) -> Reason | None:
    """Why the image may not run. `listed` are patterns of references, None: the tenant may run any."""
    image = spec.image
    reference = None if image is None else image.reference
    if listed is not None and not any(reference and fnmatchcase(reference, pattern) for pattern in listed):
        return words.image_not_listed(spec.tenant, reference, listed)
    if image is None:
        return None
    if image.dataset is not None and spec.dataset is not None and image.dataset != spec.dataset:
        return words.image_for_other_dataset(image.reference, _named(image.dataset) or "", _named(spec.dataset) or "")
    return None if bound is None else next(_differences(image, bound), None)


def _differences(image: Image, bound: Bound) -> Iterator[Reason]:
    said = (("commit", bound.commit, image.commit), ("dataset", _named(bound.dataset), _named(image.dataset)))
    for field, was, now in said:
        if was is not None and now is not None and was != now:
            yield words.image_bound(image.reference, field, was, now, bound.job_id)


def _named(dataset: DatasetRef | None) -> str | None:
    return None if dataset is None else f"{dataset.name} version {dataset.version}"
