"""`farside dataset`: put a version of a dataset into object storage, list the versions that stand there."""

import asyncio
from pathlib import Path

import click
from pydantic import ValidationError

from contracts import registry
from contracts.jobs import DatasetRef
from contracts.requests import DatasetsQuery
from contracts.transfers import Manifest, TransferCompleted, TransferFailed, TransferRequest
from libs.cli import options, output, words
from libs.cli.errors import CliError, FileError, UnreachableError
from libs.cli.manual import ManualGroup
from libs.cli.session import Session, connected, run
from libs.kit.ids import new_id
from libs.objects import ObjectsError, upload_prefix
from libs.objects.datasets import build_manifest, manifest_sha256, upload_folder

STAGING_S = 600.0
ACTOR = "cli"


@click.group(cls=ManualGroup)
def dataset() -> None:
    """Put dataset versions into object storage, and list them.

    A version is a folder of files under a manifest of digests. Once it stands, it never changes.
    """


@dataset.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--name", required=True, metavar="NAME", help="Name of the dataset: a-z, 0-9 and -.")
@click.option("--version", required=True, metavar="VERSION", help="This version's name: a-z, 0-9 and -.")
@options.acting_tenant
@options.common
def put(folder: Path, name: str, version: str, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """Put the files of FOLDER into object storage as a version of a dataset.

    Files are digested here, uploaded to a staging place, and copied into the dataset by the transfer service, which
    reads every copy back and writes the manifest last: a version is there as a whole or not at all. The same content
    under the same version again is no error; other content is refused.

    Example:
      farside dataset put digits --name digits --version v1 --tenant acme

    """
    try:
        ref = DatasetRef(name=name, version=version)
    except ValidationError as error:
        fault = error.errors()[0]
        msg = f"--{fault['loc'][0]} is {fault['input']!r}: expected 1 to 63 characters out of a-z, 0-9 and -"
        raise FileError(msg) from None
    try:
        manifest = build_manifest(folder, ref)
    except (ObjectsError, OSError) as error:
        raise FileError(str(error)) from None
    run(_put(folder, manifest, tenant, stack, as_json=as_json))


async def _put(folder: Path, manifest: Manifest, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    output.note(f"uploading {words.count(len(manifest.entries), 'file')}, {words.size(manifest.size_bytes)}")
    async with connected(stack) as session:
        done = await stage(session, folder, manifest, tenant)
    if as_json:
        output.as_json(done)
        return
    ref = done.dataset
    files = words.count(done.objects, "file")
    output.note(f"dataset {ref.name} {ref.version} stands verified: {files}, {words.size(done.size_bytes)}")
    click.echo(done.manifest_sha256)


async def stage(
    session: Session, folder: Path, manifest: Manifest, tenant: str, limit_s: float = STAGING_S
) -> TransferCompleted:
    """Upload the folder, ask for its staging, and wait for the end of it; CliError when it fails."""
    transfer_id = new_id()
    async with session.store() as store:
        source = await asyncio.to_thread(
            upload_folder, store.blocking, folder, manifest, upload_prefix(tenant, transfer_id)
        )
    request = TransferRequest(
        transfer_id=transfer_id,
        tenant=tenant,
        dataset=manifest.dataset,
        source=source,
        manifest_sha256=manifest_sha256(manifest),
    )
    answers = (registry.TRANSFERS_COMPLETED, registry.TRANSFERS_FAILED)
    since = await session.next_sequence(registry.TRANSFERS_COMPLETED)
    await session.publish(
        registry.TRANSFERS_REQUEST, request, key=tenant, subject=transfer_id, actor=ACTOR, id=new_id()
    )
    answer = await session.first(answers, tenant, since, lambda event: event.body.transfer_id == transfer_id, limit_s)
    if answer is None:
        msg = (
            f"the files are uploaded, but transfer {transfer_id} did not end within {limit_s:.0f} s: "
            "`farside status` shows whether the transfer service is up"
        )
        raise UnreachableError(msg)
    found: TransferCompleted | TransferFailed = answer.body
    if isinstance(found, TransferCompleted):
        return found
    msg_0 = f"dataset {manifest.dataset.name} {manifest.dataset.version} was not staged: {found.message}"
    raise CliError(msg_0)


@dataset.command("list")
@click.option("--name", metavar="NAME", help="Only versions of this dataset.")
@options.seen_tenant
@options.common
def list_(name: str | None, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    """List dataset versions, newest first.

    Example:
      farside dataset list --name digits

    """
    run(_list(name, tenant, stack, as_json=as_json))


async def _list(name: str | None, tenant: str, stack: Path | None, *, as_json: bool) -> None:
    async with connected(stack) as session:
        reply = await session.ask(registry.QUERY_DATASETS, DatasetsQuery(name=name), key=tenant)
    if as_json:
        output.as_json(reply)
        return
    rows = [
        (
            item.dataset.name,
            item.dataset.version,
            item.tenant,
            str(item.objects),
            words.size(item.size_bytes),
            words.moment(item.completed_at),
            item.manifest_sha256[:12],
        )
        for item in reply.datasets
    ]
    headers = ("NAME", "VERSION", "TENANT", "FILES", "SIZE", "SINCE", "MANIFEST")
    output.table(headers, rows, empty="no dataset; `farside dataset put --help`")
