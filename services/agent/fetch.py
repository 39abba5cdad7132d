"""Everything an attempt needs before it may start: code, data, checkpoint, and the fence raised.

In: an offer. Out: `Inputs`, every byte verified against its digest. What may pass (a store or a service that is away)
is tried again with a growing delay for as long as the attempt is wanted; what cannot is an InputError.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from contracts import registry
from contracts.jobs import DatasetRef
from contracts.requests import DatasetLookup, ProblemCode, RestoreReply, RestoreRequest
from contracts.transfers import Manifest, TransferCompleted
from contracts.work import WorkRun
from libs.bus import Client, Problem
from libs.kit.logs import get_logger
from libs.kit.retry import delays
from libs.objects import AsyncStore, DamagedError, MissingError, RefusedError, artefact_area
from libs.objects.datasets import fetch_folder
from services.agent.cache import Cache
from services.agent.core.decide import binding
from services.agent.core.model import Inputs
from services.agent.errors import InputError
from services.agent.unpack import Bound, unpack

T = TypeVar("T")

RETRY_FIRST_S = 0.25
RETRY_CAP_S = 5.0
REQUEST_TIMEOUT_S = 5.0
RESTORE_FIRST_S = 8.0
RESTORE_CAP_S = 120.0
HOPELESS_TRIES = 3
CODE_FILE = "code.tar.gz"
FILES_FOLDER = "files"
MANIFEST_FILE = "MANIFEST.json"


@dataclass(frozen=True)
class Limits:
    """Bounds of a job's code."""

    artefact_bytes: int
    unpacked: Bound


class Fetcher:
    """Fetches for all attempts of the node."""

    def __init__(
        self, client: Callable[[], Client], objects: AsyncStore, cache: Cache, limits: Limits, node: str
    ) -> None:
        self._client = client
        self._objects = objects
        self._cache = cache
        self._limits = limits
        self._node = node

    async def fetch(self, run: WorkRun, folder: Path, pin: Callable[[str], None]) -> Inputs:
        """Fetch all; `pin` is told each cache entry before it is used. Raises InputError."""
        await patiently("code", lambda: self._code(run, folder / "work", pin))
        dataset = await patiently("dataset", lambda: self._dataset(run, pin))
        timeouts = delays(RESTORE_FIRST_S, RESTORE_CAP_S)
        reply = await patiently("restore", lambda: self._open_restore(run, next(timeouts)))
        if reply.step is None:
            return Inputs(dataset)
        file = await patiently("checkpoint", lambda: self._checkpoint(run, reply, folder))
        return Inputs(dataset, reply.step, str(file))

    async def _code(self, run: WorkRun, work: Path, pin: Callable[[str], None]) -> None:
        artefact = run.spec.artefact
        if artefact is None:
            await asyncio.to_thread(work.mkdir, parents=True, exist_ok=True, mode=0o700)
            return
        key = self._objects.key(artefact.uri)
        area = artefact_area(run.tenant)
        if not key.startswith(area):
            msg = f"artefact {artefact.uri} lies outside {area}: a job runs code of its own tenant only"
            raise InputError(msg)
        size_bytes = (await self._objects.head(key)).size_bytes
        if size_bytes > self._limits.artefact_bytes:
            allowed = self._limits.artefact_bytes
            msg = f"artefact {artefact.uri} has {size_bytes} bytes, {allowed} are allowed: put data into a dataset"
            raise InputError(msg)

        async def fill(part: Path) -> None:
            await self._objects.get_to(key, part / CODE_FILE, artefact.sha256)

        name = f"code-{run.tenant}-{artefact.sha256}"
        pin(name)
        entry = await self._cache.get(name, size_bytes, fill)
        await asyncio.to_thread(unpack, entry / CODE_FILE, work, self._limits.unpacked)

    async def _dataset(self, run: WorkRun, pin: Callable[[str], None]) -> str | None:
        if run.spec.dataset is None:
            return None
        staged = await self._lookup(run.tenant, run.spec.dataset)
        manifest = await self._manifest(staged)

        async def fill(part: Path) -> None:
            prefix = self._objects.key(staged.prefix)
            await asyncio.to_thread(fetch_folder, self._objects.blocking, manifest, prefix, part / FILES_FOLDER)

        name = f"data-{staged.manifest_sha256}"
        pin(name)
        return str(await self._cache.get(name, manifest.size_bytes, fill) / FILES_FOLDER)

    async def _lookup(self, tenant: str, dataset: DatasetRef) -> TransferCompleted:
        lookup = DatasetLookup(tenant=tenant, name=dataset.name, version=dataset.version)
        try:
            return await self._client().request(
                registry.QUERY_DATASET, lookup, key=self._node, timeout_s=REQUEST_TIMEOUT_S
            )
        except Problem as problem:
            if problem.code is not ProblemCode.NOT_FOUND:
                raise
            words = f"dataset {dataset.name} version {dataset.version} of tenant {tenant} is not staged"
            msg = f"{words}: put it with `farside dataset put`"
            raise InputError(msg) from problem

    async def _manifest(self, staged: TransferCompleted) -> Manifest:
        data = await self._objects.get(self._objects.key(staged.manifest))
        found = hashlib.sha256(data).hexdigest()
        if found != staged.manifest_sha256:
            msg = f"{staged.manifest} has SHA-256 {found}, {staged.manifest_sha256} was promised"
            raise DamagedError(msg)
        try:
            return Manifest.model_validate_json(data)
        except ValidationError as error:
            msg = f"{staged.manifest} is no manifest: stage the dataset again"
            raise InputError(msg) from error

    async def _open_restore(self, run: WorkRun, timeout_s: float) -> RestoreReply:
        """Ask for the newest valid checkpoint; its digests are read meanwhile, so a repeated question waits longer."""
        request = RestoreRequest(
            job_id=run.job_id,
            tenant=run.tenant,
            attempt=run.attempt,
            member=run.member,
            members=len(run.members),
            node=self._node,
            binding=binding(run),
        )
        reply = await self._client().request(registry.CALL_RESTORE, request, key=self._node, timeout_s=timeout_s)
        if not reply.granted:
            msg = f"restore refused: {reply.message}"
            raise InputError(msg)
        return reply

    async def _checkpoint(self, run: WorkRun, reply: RestoreReply, folder: Path) -> Path:
        shards = [shard for shard in reply.shards if shard.member == run.member]
        if len(shards) != 1 or len(reply.shards) != len(run.members):
            words = f"has {len(reply.shards)} shards, the attempt has {len(run.members)} members"
            msg = f"checkpoint of step {reply.step} {words}: submit the job with as many members as it was saved with"
            raise InputError(msg)
        target = folder / "restore" / f"{reply.step:012d}.safetensors"
        await self._objects.get_to(self._objects.key(shards[0].uri), target, shards[0].sha256)
        return target


async def patiently(what: str, call: Callable[[], Awaitable[T]]) -> T:
    """Call until it works. What is missing, damaged or refused is tried a few times, what is away for ever."""
    hopeless = 0
    for delay_s in delays(RETRY_FIRST_S, RETRY_CAP_S):
        try:
            return await call()
        except InputError:
            raise
        except Exception as error:
            hopeless += _hopeless(error)
            if hopeless == HOPELESS_TRIES:
                msg = f"{what}: {error}"
                raise InputError(msg) from error
            get_logger().warning("fetch.retried", what=what, error=repr(error))
        await asyncio.sleep(delay_s)
    raise AssertionError(what)


def _hopeless(error: Exception) -> bool:
    if isinstance(error, Problem):
        return error.code in (ProblemCode.INVALID, ProblemCode.NOT_FOUND)
    if isinstance(error, NotADirectoryError | IsADirectoryError | FileExistsError):
        return True  # a dataset that holds both `a` and `a/b`
    return isinstance(error, DamagedError | MissingError | RefusedError)
