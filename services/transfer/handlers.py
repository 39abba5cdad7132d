"""The shell: requests in, one transaction each; the staging itself is the worker's."""

from contracts.jobs import DatasetRef, JobState
from contracts.requests import DatasetLookup, DatasetsQuery, DatasetsReply, ProblemCode
from contracts.transfers import TransferCompleted, TransferRequest
from libs.bus import Call, Event, NotYet, Problem, Refused, Tx
from libs.db import Connection
from libs.kit.clock import Clock
from libs.telemetry import context
from services.transfer import store
from services.transfer.core import Dataset, State, Transfer
from services.transfer.stager import Stager
from services.transfer.store import Origin
from services.transfer.telling import completed, tell_completed, tell_failed
from services.transfer.worker import Worker

REPLY_BYTES_LIMIT = 400 * 1024
ALL_TENANTS = "_"


class Handlers:
    """What the service does with what comes in."""

    def __init__(self, stager: Stager, worker: Worker, clock: Clock) -> None:
        """`worker` is woken by requests."""
        self._stager = stager
        self._worker = worker
        self._clock = clock

    async def requested(self, tx: Tx[Connection], event: Event[TransferRequest]) -> None:
        """Enter a request. The same request again is answered again; another one under its id is refused."""
        request, now = event.body, self._clock.now()
        origin = Origin(event.actor or event.source, context.current())
        if await store.add(tx.conn, request, origin, now):
            self._worker.wake()
            return
        known = await store.load(tx.conn, request.transfer_id)
        assert known is not None, f"transfer {request.transfer_id} has no row"
        if not known.answers(request):
            msg = f"transfer {request.transfer_id} was requested before with another body: use a new transfer_id"
            raise Refused(msg)
        await self._answer_again(tx, known, origin)

    async def placed(self, tx: Tx[Connection], event: Event[JobState]) -> None:
        """The nodes of an attempt may learn where the dataset of its job stands."""
        state = event.body
        dataset = state.spec.dataset
        if state.attempt is not None and dataset is not None:
            nodes = [member.node for member in state.attempt.members]
            await store.add_readers(tx.conn, nodes, state.tenant, dataset)

    async def datasets(self, tx: Tx[Connection], call: Call[DatasetsQuery]) -> DatasetsReply:
        """Dataset versions that stand, newest first, as many as fit into a reply."""
        tenant = None if call.key == ALL_TENANTS else call.key
        size_bytes, fitting = 0, list[TransferCompleted]()
        for dataset in await store.list_datasets(tx.conn, tenant, call.body.name):
            row = self._row(dataset)
            size_bytes += len(row.model_dump_json())
            if size_bytes > REPLY_BYTES_LIMIT:
                break
            fitting.append(row)
        return DatasetsReply(datasets=fitting)

    async def dataset(self, tx: Tx[Connection], call: Call[DatasetLookup]) -> TransferCompleted:
        """Where one dataset version stands, for an agent that is to run a job on it; others learn nothing of it."""
        asked = call.body
        named = DatasetRef(name=asked.name, version=asked.version)
        if not await store.is_reader(tx.conn, call.key, asked.tenant, named):
            job = f"job of tenant {asked.tenant} on dataset {asked.name}:{asked.version}"
            msg = f"no {job} was placed on node {call.key}, as far as is known"
            raise NotYet(msg)
        found = await store.find_dataset(tx.conn, asked.tenant, asked.name, asked.version)
        if found is None:
            msg = f"tenant {asked.tenant} has no dataset {asked.name}:{asked.version}: `farside dataset put` stages one"
            raise Problem(ProblemCode.NOT_FOUND, msg)
        return self._row(found)

    async def _answer_again(self, tx: Tx[Connection], known: Transfer, origin: Origin) -> None:
        """The sender may have missed the answer."""
        dataset = known.dataset
        match known.state:
            case State.STAGING:
                return
            case State.COMPLETED:
                standing = await store.find_dataset(tx.conn, known.tenant, dataset.name, dataset.version)
                assert standing is not None, f"dataset {dataset!r} of transfer {known.transfer_id} has no row"
                await tell_completed(tx, completed(known, standing, self._stager), origin)
            case State.CLEARING | State.FAILED:
                await tell_failed(tx, known, known.message or "failed before", self._clock.now(), origin)

    def _row(self, dataset: Dataset) -> TransferCompleted:
        transfer = Transfer(
            dataset.transfer_id, dataset.tenant, dataset.dataset, "", dataset.manifest_sha256, State.COMPLETED
        )
        return completed(transfer, dataset, self._stager)
