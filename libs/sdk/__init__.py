"""Farside inside a job: read the dataset, report progress, save and restore.

    import libs.sdk as farside

    with farside.attach() as job:
        checkpoint = job.restore()
        ...
        job.progress(step, loss=loss)
        job.save(step, {"w": w}, extra={"rng": rng.bit_generator.state})

Needs numpy and safetensors and nothing else; the same script runs outside Farside, with a folder in place of a cluster.
"""

from libs.sdk.errors import LinkError, RefusedError, SaveError, SdkError
from libs.sdk.session import Session, attach
from libs.sdk.tensors import Checkpoint

__all__ = ["Checkpoint", "LinkError", "RefusedError", "SaveError", "SdkError", "Session", "attach"]
