"""Gathering what proves an invoice, for libs.audit: from the object store, from the stream and from the services."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

from nats.errors import Error as NatsError

from contracts import registry
from contracts.invoices import Invoice, InvoiceLine, InvoicesQuery, LinesQuery
from contracts.registry import NO_KEY
from contracts.usage import RefusedQuery, RollUpsQuery, SamplesQuery, UsageMeasured, UsageRolledUp, UsageRow
from libs.audit import Dossier, Findings, Identity, Replay, check, identity, reference
from libs.audit.extracts import read_extract
from libs.audit.gathered import Extract
from libs.bus.errors import BusError
from libs.bus.reader import Reader
from libs.cli import output, words
from libs.cli.errors import CliError, FileError, UnreachableError
from libs.cli.session import Session
from libs.objects import AsyncStore, ObjectsError, UnavailableError, digest_of

T = TypeVar("T")
P = TypeVar("P", bound="Page")
Say = Callable[[str], None]

MAX_PAGES = 100_000
AT_ONCE = 8
TELL_EVERY = 10_000


class Page(Protocol):
    """A reply that goes on at `cursor`."""

    @property
    def cursor(self) -> str | None:
        """Where the next page begins."""
        ...


async def every(ask: Callable[[str | None], Awaitable[P]], items: Callable[[P], Iterable[T]]) -> list[T]:
    """What all pages of a query hold together."""
    found, cursor = list[T](), None
    for _ in range(MAX_PAGES):
        page = await ask(cursor)
        found += items(page)
        cursor = page.cursor
        if cursor is None:
            break
    return found


async def invoice_lines(session: Session, invoice: Invoice) -> tuple[list[InvoiceLine], str]:
    """The lines of an invoice, and the text of the rate card that billing keeps for it."""
    texts: list[str] = []
    lines: list[InvoiceLine] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        query = LinesQuery(invoice_id=invoice.invoice_id, cursor=cursor)
        page = await session.ask(registry.QUERY_LINES, query, key=invoice.tenant)
        texts += [page.rate_card_text] if page.rate_card_text is not None else []
        lines += page.lines
        cursor = page.cursor
        if cursor is None:
            break
    return lines, texts[0] if texts else ""


def card_in(folder: Path, invoice: Invoice) -> str:
    """The text of the invoice's rate card out of a folder of one's own. Raises FileError when it is not there."""
    for path in sorted(folder.glob("*.yaml")):
        content = path.read_bytes()
        if digest_of(content).sha256 == invoice.rate_card_sha256:
            return content.decode()
    msg = (
        f"no file in {folder} is rate card {invoice.rate_card} version {invoice.rate_card_version} "
        f"(sha256 {invoice.rate_card_sha256}): name the folder that holds it, or leave --rates out"
    )
    raise FileError(msg)


async def verify(
    session: Session, invoice: Invoice, *, card_text: str | None = None, say: Say = output.note
) -> Findings:
    """Prove an invoice anew from what was measured; `say` gets the progress.

    The rate card is billing's copy, proven by its digest, unless `card_text` is given.
    """
    return await _Gathering(session, invoice, say).findings(card_text)


class _Gathering:
    """One invoice's dossier while it is put together."""

    def __init__(self, session: Session, invoice: Invoice, say: Say) -> None:
        self._session = session
        self._invoice = invoice
        self._tenant = invoice.tenant
        self._say = say

    async def findings(self, card_text: str | None) -> Findings:
        invoice = self._invoice
        lines, kept_text = await invoice_lines(self._session, invoice)
        rollups = await self._rollups(invoice.close_id)
        self._say(f"{words.count(len(rollups), 'roll-up')}: fetching the extracts and metering's samples")
        extracts = await self._extracts(rollups)
        raw = {rollup.rollup_id: await self._samples(rollup_id=rollup.rollup_id) for rollup in rollups}
        reach = await self._reach()
        replay = Replay(
            tenant=self._tenant,
            cutoff=invoice.cutoff,
            billed=_by_identity(extracts.values()),
            earlier=await self._earlier(reach),
            refused=frozenset(await self._refused()),
        )
        published = await self._replay(replay)
        jobs = {row.job_id for row in replay.unexplained}
        held = [row for job_id in sorted(jobs) for row in await self._samples(job_id=job_id)]
        text = kept_text if card_text is None else card_text
        return check(Dossier(invoice, lines, text, rollups, published, extracts, raw, replay, frozenset(held), reach))

    async def _rollups(self, close_id: str) -> list[UsageRolledUp]:
        return await every(
            lambda cursor: self._session.ask(
                registry.QUERY_ROLLUPS, RollUpsQuery(close_id=close_id, cursor=cursor), key=self._tenant
            ),
            lambda page: page.rollups,
        )

    async def _samples(self, *, rollup_id: str | None = None, job_id: str | None = None) -> list[UsageRow]:
        return await every(
            lambda cursor: self._session.ask(
                registry.QUERY_SAMPLES,
                SamplesQuery(rollup_id=rollup_id, job_id=job_id, cursor=cursor),
                key=self._tenant,
            ),
            lambda page: page.rows,
        )

    async def _refused(self) -> list[UsageRow]:
        refused = await every(
            lambda cursor: self._session.ask(registry.QUERY_REFUSED, RefusedQuery(cursor=cursor), key=self._tenant),
            lambda page: page.rows,
        )
        return [each.row for each in refused]

    async def _extracts(self, rollups: list[UsageRolledUp]) -> dict[str, Extract]:
        slots = asyncio.Semaphore(AT_ONCE)
        async with self._session.store() as store:

            async def fetch(rollup: UsageRolledUp) -> Extract:
                async with slots:
                    return await _fetch(store, rollup.extract)

            found = await asyncio.gather(*(fetch(rollup) for rollup in rollups))
        return {rollup.rollup_id: extract for rollup, extract in zip(rollups, found, strict=True)}

    async def _earlier(self, reach: datetime | None) -> dict[Identity, UsageRow]:
        """Samples of the tenant's earlier closings, as far back as the stream reaches."""
        invoice = self._invoice
        closes: list[str] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._session.ask(registry.QUERY_INVOICES, InvoicesQuery(cursor=cursor), key=self._tenant)
            closes += [each.close_id for each in page.invoices if each.cutoff < invoice.cutoff]
            closes += [each.close_id for each in page.held if each.period_end <= invoice.period_start]
            cursor = page.cursor
            if cursor is None:
                break
        rollups = [rollup for close_id in closes for rollup in await self._rollups(close_id)]
        since = None if reach is None else reach.replace(minute=0, second=0, microsecond=0)
        extracts = await self._extracts([rollup for rollup in rollups if since is None or rollup.hour >= since])
        return _by_identity(extracts.values())

    async def _reach(self) -> datetime | None:
        """When the stream's first message was stored, if there were others before it."""
        js, name = self._session.client.js, registry.USAGE.name
        try:
            state = (await js.stream_info(name)).state
            if state.first_seq <= 1:
                return None
            if state.messages == 0:
                return datetime.now(UTC)
            return (await js.get_msg(name, seq=state.first_seq, direct=True)).time
        except (NatsError, TimeoutError) as error:
            msg = f"stream {name} cannot be read ({error!r}): `farside provision` makes it"
            raise UnreachableError(msg) from None

    async def _replay(self, replay: Replay) -> dict[str, UsageRolledUp]:
        """Feed every measured message that is there to `replay`; returns the roll-ups that were published."""
        client, taken = self._session.client, 0
        published: dict[str, UsageRolledUp] = {}
        messages = [registry.USAGE_MEASURED, registry.USAGE_ROLLED_UP]
        reader = Reader(client.connection, client.js, client.address.domain, messages, ["*"], "all")
        self._say(f"replaying the stream {registry.USAGE.name}")
        try:
            async with aclosing(reader.replay()) as events:
                async for event in events:
                    if isinstance(event.body, UsageMeasured):
                        assert event.delivery is not None
                        replay.add(event.body, event.delivery.stored_at)
                        taken += 1
                        if taken % TELL_EVERY == 0:
                            self._say(f"{taken} measured messages replayed")
                    elif event.key == self._tenant:
                        published[event.body.rollup_id] = event.body
        except (BusError, NatsError) as error:
            msg = f"stream {registry.USAGE.name} cannot be replayed: {error}; `farside status` shows how the bus is"
            raise UnreachableError(msg) from None
        self._say(f"{words.count(taken, 'measured message')} replayed to the end")
        return published


def _by_identity(extracts: Iterable[Extract]) -> dict[Identity, UsageRow]:
    return {identity(row): row for extract in extracts for row in extract.rows}


async def _fetch(store: AsyncStore, uri: str) -> Extract:
    """An extract; what is missing or damaged is a finding, a store that is away is an error."""
    try:
        return read_extract(await store.get(store.key(uri)))
    except UnavailableError:
        raise
    except ObjectsError as error:
        return Extract(fault=str(error))


async def find_invoice(session: Session, name: str | None, tenant: str = NO_KEY) -> Invoice:
    """An invoice by number (acme-0001), by id or by its beginning; None: the newest. CliError when there is none."""

    def is_named(invoice: Invoice) -> bool:
        return name is None or name == reference(invoice) or invoice.invoice_id.startswith(name)

    found = list[Invoice]()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.ask(registry.QUERY_INVOICES, InvoicesQuery(cursor=cursor), key=tenant)
        found += [invoice for invoice in page.invoices if is_named(invoice)]
        cursor = page.cursor
        if cursor is None or (name is None and found):
            break
    if name is not None and len(found) > 1:
        msg = f"invoice {name!r} is the beginning of {len(found)} ids: give more of it"
        raise CliError(msg)
    if not found:
        what = "no invoice yet" if name is None else f"no invoice with the number or id {name!r}"
        msg = f"{what}{'' if tenant == NO_KEY else f' for tenant {tenant}'}: see `farside bill list`"
        raise CliError(msg)
    return found[0]
