"""Job files: YAML text in, a JobSpec or every mistake in it out, before anything is sent.

A job file holds the fields of `contracts.jobs.JobSpec`, all but `job_id` and `tenant`, which `farside job submit`
supplies.
"""

from contracts.jobs import JobSpec
from libs.cli import yamlfile
from libs.kit import yamlfile as forms
from libs.kit.yamlfile import Form, Mistake

JOB_FILE = Form(
    model=JobSpec,
    what="job file",
    least="name, kind and command",
    given={
        "job_id": "leave it out, or pass --job-id to `farside job submit`",
        "tenant": "leave it out and pass --tenant to `farside job submit`",
    },
)


def parse(text: str, *, job_id: str, tenant: str) -> JobSpec | list[Mistake]:
    """Read a job file. Returns the job, or all mistakes in the order of their lines."""
    return forms.parse(text, JOB_FILE, {"job_id": job_id, "tenant": tenant})


def read(path: str, text: str, *, job_id: str, tenant: str) -> JobSpec:
    """As `parse`; raises FileError that lists every mistake with `path` and line."""
    given = {"job_id": job_id, "tenant": tenant}
    return yamlfile.read(path, text, JOB_FILE, given, verdict="nothing was sent: ")
