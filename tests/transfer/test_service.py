"""The transfer service against real servers: staging, what may be wrong with it, and death in the middle of it."""

import asyncio
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from contracts import registry
from contracts.jobs import DatasetRef
from contracts.requests import DatasetLookup, DatasetsQuery, ProblemCode
from contracts.transfers import Manifest, TransferCompleted, TransferFailed, TransferRequest
from libs.bus import Problem
from libs.kit.ids import new_id
from libs.objects import datasets
from tests.checkpoint.stage import NODE, TENANT, Stage
from tests.objects.proxy import S3Proxy
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = {
    b"train/one.npy": b"one" * 1000,
    b"train/two.npy": b"two" * 2000,
    b"empty": b"",
    "é".encode(): b"composed",
    "e\u0301".encode(): b"decomposed",
    b"not-utf8-\xff": b"bytes",
    b"plus+ %&name": b"odd",
}


@dataclass
class Upload:
    """A dataset version on its way."""

    stage: Stage
    folder: Path
    dataset: DatasetRef
    transfer_id: str = field(default_factory=new_id)

    @property
    def prefix(self) -> str:
        return f"uploads/{TENANT}/{self.transfer_id}/"

    @property
    def target(self) -> str:
        return f"datasets/{TENANT}/{self.dataset.name}/{self.dataset.version}/"

    def manifest(self) -> Manifest:
        return datasets.build_manifest(self.folder, self.dataset)

    def upload(self, manifest: Manifest | None = None) -> None:
        manifest = manifest or self.manifest()
        datasets.upload_folder(self.stage.store, self.folder, self.manifest(), self.prefix)
        self.stage.store.put(f"{self.prefix}MANIFEST.json", datasets.manifest_bytes(manifest))

    def request(self, **changes: Any) -> TransferRequest:
        content = self.stage.store.get(f"{self.prefix}MANIFEST.json")
        return TransferRequest(
            transfer_id=self.transfer_id,
            tenant=TENANT,
            dataset=self.dataset,
            source=self.stage.store.uri(self.prefix),
            manifest_sha256=hashlib.sha256(content).hexdigest(),
        ).model_copy(update=changes)

    async def send(self, request: TransferRequest | None = None) -> None:
        request = request or self.request()
        await self.stage.client.publish(
            registry.TRANSFERS_REQUEST, request, key=TENANT, subject=self.transfer_id, actor="/test"
        )

    async def events(self) -> list[TransferCompleted | TransferFailed]:
        messages = [registry.TRANSFERS_COMPLETED, registry.TRANSFERS_FAILED]
        found = await self.stage.client.history(messages, key=TENANT)
        return [event.body for event in found if event.body.transfer_id == self.transfer_id]

    async def ended(self, count: int = 1) -> TransferCompleted | TransferFailed:
        async def enough() -> list[TransferCompleted | TransferFailed]:
            found = await self.events()
            return found if len(found) >= count else []

        return (await until(enough, 40, f"transfer {self.transfer_id} to end"))[-1]

    async def failed(self) -> str:
        ended = await self.ended()
        assert isinstance(ended, TransferFailed)
        return ended.message

    def staged(self) -> list[str]:
        return [item.key.removeprefix(self.target) for item in self.stage.store.list(self.target)]


def prepare(stage: Stage, folder: Path, files: dict[bytes, bytes] | None = None, version: str = "v1") -> Upload:
    for name, content in (files or FILES).items():
        path = folder / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Upload(stage, folder, DatasetRef(name=f"digits-{os.urandom(4).hex()}", version=version))


async def test_tc4_tc8_tc10_a_folder_is_staged_and_comes_back_byte_for_byte(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path / "source")
    upload.upload()
    await upload.send()
    done = await upload.ended()
    assert isinstance(done, TransferCompleted)
    assert (done.objects, done.size_bytes) == (len(FILES), sum(map(len, FILES.values())))
    assert done.prefix == stage.store.uri(upload.target)
    assert done.manifest == stage.store.uri(f"{upload.target}MANIFEST.json")
    lookup = DatasetLookup(tenant=TENANT, name=upload.dataset.name, version="v1")
    await stage.place(new_id(), 1, [NODE], dataset=upload.dataset)
    await stage.until_placed()
    assert await stage.client.request(registry.QUERY_DATASET, lookup, key=NODE) == done
    query = DatasetsQuery(name=upload.dataset.name)
    assert (await stage.client.request(registry.QUERY_DATASETS, query, key=TENANT)).datasets == [done]
    manifest = Manifest.model_validate_json(stage.store.get(stage.store.key(done.manifest)))
    datasets.fetch_folder(stage.store, manifest, stage.store.key(done.prefix), tmp_path / "back")
    back = tmp_path / "back"
    found = {os.fsencode(path.relative_to(back)): path.read_bytes() for path in back.rglob("*") if path.is_file()}
    assert found == FILES


async def test_an_unknown_dataset_is_not_found_in_words(stage: Stage) -> None:
    lookup = DatasetLookup(tenant=TENANT, name="nowhere", version="v9")
    await stage.place(new_id(), 1, [NODE], dataset=DatasetRef(name="nowhere", version="v9"))
    await stage.until_placed()
    with pytest.raises(Problem, match="no dataset nowhere:v9") as problem:
        await stage.client.request(registry.QUERY_DATASET, lookup, key=NODE)
    assert problem.value.code is ProblemCode.NOT_FOUND
    assert (await stage.client.request(registry.QUERY_DATASETS, DatasetsQuery(name="nowhere"), key="_")).datasets == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("flip", "train/one.npy has SHA-256 .* at the source"),
        ("truncate", "train/one.npy has 2999 bytes at the source, the manifest says 3000"),
        ("missing", "1 of 7 files are missing at the source, train/one.npy"),
        ("extra", "the source has 1 files that the manifest does not name, train/extra"),
    ],
)
async def test_t1_what_differs_from_the_manifest_is_no_version(
    stage: Stage, tmp_path: Path, how: str, words: str
) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    key, data = f"{upload.prefix}files/train/one.npy", FILES[b"train/one.npy"]
    match how:
        case "flip":
            stage.store.put(key, b"x" + data[1:])
        case "truncate":
            stage.store.put(key, data[:-1])
        case "missing":
            stage.store.delete([key])
        case _:
            stage.store.put(f"{upload.prefix}files/train/extra", b"extra")
    await upload.send()
    assert re.search(words, await upload.failed())
    await until(lambda: upload.staged() == [], 20, "what was staged to be removed")
    lookup = DatasetLookup(tenant=TENANT, name=upload.dataset.name, version="v1")
    await stage.place(new_id(), 1, [NODE], dataset=upload.dataset)
    await stage.until_placed()
    with pytest.raises(Problem, match="no dataset"):
        await stage.client.request(registry.QUERY_DATASET, lookup, key=NODE)


async def test_a_failed_version_may_be_put_again(stage: Stage, tmp_path: Path) -> None:
    first = prepare(stage, tmp_path)
    first.upload()
    stage.store.put(f"{first.prefix}files/empty", b"not empty")
    await first.send()
    await first.failed()
    again = Upload(stage, tmp_path, first.dataset)
    again.upload()
    await again.send()
    assert isinstance(await again.ended(), TransferCompleted)


async def test_a_version_stands_for_ever(stage: Stage, tmp_path: Path) -> None:
    first = prepare(stage, tmp_path)
    first.upload()
    await first.send()
    done = await first.ended()
    assert isinstance(done, TransferCompleted)
    same = Upload(stage, tmp_path, first.dataset)
    same.upload()
    await same.send()
    assert await same.ended() == done.model_copy(update={"transfer_id": same.transfer_id})
    (tmp_path / "empty").write_bytes(b"other content")
    other = Upload(stage, tmp_path, first.dataset)
    other.upload()
    await other.send()
    assert "a version never changes" in await other.failed()
    assert stage.store.get(f"{first.target}files/empty") == b""


async def test_a_request_that_comes_again_is_answered_again(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    await upload.send()
    done = await upload.ended()
    await upload.send()
    assert await upload.ended(2) == done
    await upload.send(upload.request(dataset=DatasetRef(name="other", version="v1")))

    async def buried() -> list[str]:
        letters = await stage.client.history([registry.DEADLETTERED])
        return [one.body.message for one in letters if upload.transfer_id.encode() in one.body.data]

    assert "use a new transfer_id" in (await until(buried, 20))[0]


@pytest.mark.parametrize("source", ["uploads/other/x/", "artefacts/acme/", "uploads/acme/../other/x/"])
async def test_a_source_of_somebody_else_is_refused(stage: Stage, tmp_path: Path, source: str) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    await upload.send(upload.request(source=stage.store.uri(source)))
    assert "is not the tenant's" in await upload.failed()


async def test_a_manifest_that_is_not_the_requested_one_is_told(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    await upload.send(upload.request(manifest_sha256="0" * 64))
    assert "was requested" in await upload.failed()


async def test_a_source_without_a_manifest_is_told(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    request = upload.request()
    stage.store.delete([f"{upload.prefix}MANIFEST.json"])
    await upload.send(request)
    assert "there is no s3://" in await upload.failed()


async def test_a_manifest_of_something_else_is_told(stage: Stage, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    manifest = upload.manifest()
    upload.upload(manifest.model_copy(update={"size_bytes": manifest.size_bytes + 1}))
    await upload.send()
    assert "its files add up to" in await upload.failed()


@dataclass(frozen=True)
class Step:
    """A request of the service to the store, and the side of the store on which it is held."""

    name: str
    method: str
    path: str
    side: Literal["before", "after"]


STEPS = [
    Step("before the manifest is read", "GET", "uploads/acme/{id}/MANIFEST.json", "before"),
    Step("before a file is copied", "PUT", "{name}/v1/files/train/two.npy", "before"),
    Step("after a file is copied, its answer lost", "PUT", "{name}/v1/files/train/two.npy", "after"),
    Step("before a copy is read back", "GET", "{name}/v1/files/train/two.npy", "before"),
    Step("before the manifest is written", "PUT", "{name}/v1/MANIFEST.json", "before"),
    Step("after the manifest is written, its answer lost", "PUT", "{name}/v1/MANIFEST.json", "after"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
async def test_killed_in_the_middle_it_goes_on(stage: Stage, proxy: S3Proxy, tmp_path: Path, step: Step) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    path = step.path.format(id=upload.transfer_id, name=upload.dataset.name)
    gate = proxy.gate(step.method, path, step.side, once=True)
    await upload.send()
    await until(gate.reached.is_set, 20, step.name)
    stage.service.kill()
    gate.open()
    stage.service.start()
    done = await upload.ended()
    assert isinstance(done, TransferCompleted)
    assert (done.objects, done.size_bytes) == (len(FILES), sum(map(len, FILES.values())))
    assert len(upload.staged()) == len(FILES) + 1
    assert len(await upload.events()) == 1


async def test_files_that_were_proven_before_a_kill_are_not_copied_again(
    stage: Stage, proxy: S3Proxy, tmp_path: Path
) -> None:
    files = {f"{index:03d}".encode(): os.urandom(10) for index in range(100)}
    upload = prepare(stage, tmp_path, files)
    upload.upload()
    gate = proxy.gate("PUT", f"{upload.dataset.name}/v1/files/070", "before", once=True)
    await upload.send()
    await until(gate.reached.is_set, 20)
    stage.service.kill()
    gate.open()
    stage.service.start()
    done = await upload.ended()
    assert isinstance(done, TransferCompleted)
    assert done.objects == 100
    assert len(proxy.requests("PUT", f"{upload.dataset.name}/v1/files/010")) == 1
    assert len(proxy.requests("PUT", f"{upload.dataset.name}/v1/files/070")) == 2


async def test_a_transfer_waits_for_a_store_that_is_away(stage: Stage, proxy: S3Proxy, tmp_path: Path) -> None:
    upload = prepare(stage, tmp_path)
    upload.upload()
    proxy.away = True
    await upload.send()
    await until(lambda: f'"transfer": "{upload.transfer_id}"' in stage.log(), 40)
    assert "transfer.postponed" in stage.log()
    proxy.away = False
    assert isinstance(await upload.ended(), TransferCompleted)


async def test_two_transfers_of_one_version_at_once_make_one_version(stage: Stage, tmp_path: Path) -> None:
    first = prepare(stage, tmp_path)
    second = Upload(stage, tmp_path, first.dataset)
    for upload in (first, second):
        upload.upload()
    await asyncio.gather(first.send(), second.send())
    one, two = await first.ended(), await second.ended()
    assert isinstance(one, TransferCompleted)
    assert isinstance(two, TransferCompleted)
    assert one.completed_at == two.completed_at
    assert len(first.staged()) == len(FILES) + 1
