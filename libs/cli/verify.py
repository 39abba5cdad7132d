"""Gathering what proves an invoice, for libs.audit: from the object store, from the stream and from the services."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from contracts import registry
from contracts.base import Model
from contracts.invoices import Invoice, InvoiceLine, InvoicesQuery, LinesPage, LinesQuery
from contracts.registry import NO_KEY, Request
from contracts.requests import ProblemCode
from contracts.usage import (
    RefusedQuery,
    RollUpsQuery,
    SampleOrigin,
    SamplesQuery,
    UsagePeriodClosed,
    UsageRolledUp,
    UsageRow,
)
from libs.audit import (
    Difference,
    Dossier,
    Elsewhere,
    Findings,
    Identity,
    Published,
    Replay,
    check,
    identity,
    reference,
)
from libs.audit.check import AHEAD
from libs.audit.extracts import read_extract
from libs.audit.gathered import Extract
from libs.bus.errors import Problem
from libs.cli import output, words
from libs.cli.errors import CliError, FileError, UnreachableError
from libs.cli.session import Session, every, pages
from libs.cli.streams import Say, Streams
from libs.objects import AsyncStore, ObjectsError, UnavailableError, digest_of

T = TypeVar("T")
M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=Model)

AT_ONCE = 8
_ASIDE = re.compile(r"For further information visit \S+|[\w.]+ failed: ValidationError:|\d+ validation errors? for")
_INPUT = re.compile(r"\[type=\w+, input_value=(.*?), input_type=\w+\]")


class InvalidRowsError(CliError):
    """A service keeps a value that the contract does not allow, and so cannot tell what was asked."""


async def told_by(session: Session, request: Request[M, R], body: M, key: str) -> R:
    """What a service tells. Raises InvalidRowsError when it cannot, for what it keeps breaks the contract."""
    try:
        return await session.ask(request, body, key=key)
    except UnreachableError as error:
        problem = error.__context__
        if isinstance(problem, Problem) and problem.code is ProblemCode.INTERNAL and _ASIDE.search(problem.message):
            shown = " ".join(_INPUT.sub(r"(it is \1)", _ASIDE.sub("", problem.message)).split())
            msg = f"{request.service} keeps what the contract of {request.id} does not allow: {shown}"
            raise InvalidRowsError(msg) from None
        raise


async def invoice_lines(session: Session, invoice: Invoice) -> tuple[list[InvoiceLine], str]:
    """The lines of an invoice, and the text of the rate card that billing keeps for it."""

    async def ask(cursor: str | None) -> LinesPage:
        query = LinesQuery(invoice_id=invoice.invoice_id, cursor=cursor)
        return await told_by(session, registry.QUERY_LINES, query, invoice.tenant)

    found = [page async for page in pages(ask)]
    texts = (page.rate_card_text for page in found if page.rate_card_text is not None)
    return [line for page in found for line in page.lines], next(texts, "")


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


@dataclass(frozen=True)
class _Others:
    """Which roll-ups of other closings matter: those of the invoice's own hours, and those that the stream measures."""

    cutoff: datetime
    hours: frozenset[datetime]
    reach: datetime | None

    def needs(self, rollup: UsageRolledUp) -> bool:
        """Whether it may hold a sample of the invoice, or a row that was measured up to its cutoff."""
        measured = self.reach is None or rollup.hour >= self.reach.replace(minute=0, second=0, microsecond=0)
        return rollup.hour in self.hours or (measured and rollup.hour <= self.cutoff + AHEAD)


class _Gathering:
    """One invoice's dossier while it is put together."""

    def __init__(self, session: Session, invoice: Invoice, say: Say) -> None:
        self._session = session
        self._invoice = invoice
        self._tenant = invoice.tenant
        self._say = say
        self._streams = Streams(session, invoice.tenant, say)
        self._faults: list[Difference] = []
        self._unchecked: list[str] = []

    async def findings(self, card_text: str | None) -> Findings:
        invoice, reach = self._invoice, await self._streams.reach()
        lines, kept_text = await self._allowed("billing's lines", invoice_lines(self._session, invoice)) or (None, "")
        closed, told = await self._streams.closings()
        own = {rollup_id: rollup for rollup_id, rollup in told.items() if rollup.close_id == invoice.close_id}
        kept = await self._allowed("metering's roll-ups", self._rollups(invoice.close_id))
        rollups = [*own.values()] if kept is None else kept
        self._say(f"{words.count(len(rollups), 'roll-up')}: fetching the extracts and metering's samples")
        extracts = await self._extracts(rollups)
        raw, origins = await self._raw(rollups)
        closing = closed.get(invoice.close_id)
        cutoff = invoice.cutoff if closing is None else closing.cutoff
        others = _Others(cutoff, frozenset(rollup.hour for rollup in rollups), reach.usage)
        replay = await self._replay(extracts, others, await self._elsewhere(others, closed, told))
        issued = await self._streams.issued(invoice.invoice_id)
        placements = await self._streams.placements({key[0] for key in replay.billed})
        return check(
            Dossier(
                invoice=invoice,
                lines=lines,
                card_text=kept_text if card_text is None else card_text,
                rollups=rollups,
                published=Published(issued, closing, own, placements, reach),
                extracts=extracts,
                raw=raw,
                origins=origins,
                replay=replay,
                held=await self._held(replay),
                faults=self._faults,
                unchecked=self._unchecked,
            )
        )

    async def _replay(
        self, extracts: dict[str, Extract], others: _Others, elsewhere: dict[Identity, list[Elsewhere]]
    ) -> Replay:
        replay = Replay(
            tenant=self._tenant,
            cutoff=others.cutoff,
            billed={identity(row): row for extract in extracts.values() for row in extract.rows},
            others=elsewhere,
            refused=frozenset(await self._allowed("metering's refused rows", self._refused()) or ()),
        )
        await self._streams.measured(replay)
        return replay

    async def _allowed(self, what: str, work: Awaitable[T]) -> T | None:
        """What a service keeps; None, and a difference, when the contract does not allow a value in it."""
        try:
            return await work
        except InvalidRowsError as error:
            expected = "values that the contract allows"
            self._faults.append(Difference(what=what, where="as they stand", expected=expected, found=error.message))
            return None

    async def _ask(self, request: Request[M, R], body: M) -> R:
        return await told_by(self._session, request, body, self._tenant)

    async def _rollups(self, close_id: str) -> list[UsageRolledUp]:
        return await every(
            lambda cursor: self._ask(registry.QUERY_ROLLUPS, RollUpsQuery(close_id=close_id, cursor=cursor)),
            lambda page: page.rollups,
        )

    async def _samples(
        self, *, rollup_id: str | None = None, job_id: str | None = None
    ) -> list[tuple[UsageRow, SampleOrigin]]:
        return await every(
            lambda cursor: self._ask(
                registry.QUERY_SAMPLES, SamplesQuery(rollup_id=rollup_id, job_id=job_id, cursor=cursor)
            ),
            lambda page: zip(page.rows, page.origins, strict=True),
        )

    async def _raw(
        self, rollups: list[UsageRolledUp]
    ) -> tuple[dict[str, list[UsageRow]], dict[Identity, SampleOrigin]]:
        """Metering's samples by roll-up, and what it keeps beside each."""
        raw, origins = dict[str, list[UsageRow]](), dict[Identity, SampleOrigin]()
        for rollup in rollups:
            what = f"metering's samples of roll-up {rollup.rollup_id}"
            found = await self._allowed(what, self._samples(rollup_id=rollup.rollup_id))
            if found is not None:
                raw[rollup.rollup_id] = [row for row, _ in found]
                origins |= {identity(row): origin for row, origin in found}
        return raw, origins

    async def _held(self, replay: Replay) -> frozenset[UsageRow]:
        """What metering holds of the jobs whose rows are not explained."""
        held: list[UsageRow] = []
        for job_id in sorted({row.job_id for row in replay.unexplained}):
            found = await self._allowed(f"metering's samples of job {job_id}", self._samples(job_id=job_id))
            held += [row for row, _ in found or ()]
        return frozenset(held)

    async def _refused(self) -> list[UsageRow]:
        refused = await every(
            lambda cursor: self._ask(registry.QUERY_REFUSED, RefusedQuery(cursor=cursor)),
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

    async def _elsewhere(
        self, others: _Others, closed: dict[str, UsagePeriodClosed], told: dict[str, UsageRolledUp]
    ) -> dict[Identity, list[Elsewhere]]:
        """Samples of the tenant's other closings, as far as roll-ups are listed or published."""
        ends = {close_id: closing.cutoff for close_id, closing in closed.items()}
        rollups, counts = dict(told), Counter(rollup.close_id for rollup in told.values())
        for close_id, end in (await self._allowed("billing's invoices", self._closings()) or {}).items():
            ends.setdefault(close_id, end)
            if close_id not in closed or counts[close_id] < closed[close_id].rollups:
                listed = await self._allowed(f"metering's roll-ups of closing {close_id}", self._rollups(close_id))
                rollups = {rollup.rollup_id: rollup for rollup in listed or ()} | rollups
        wanted = [each for each in rollups.values() if each.close_id != self._invoice.close_id and others.needs(each)]
        found: dict[Identity, list[Elsewhere]] = {}
        for rollup_id, extract in (await self._extracts(wanted)).items():
            close_id = rollups[rollup_id].close_id
            later = ends.get(close_id, others.cutoff) > others.cutoff
            if extract.fault is not None:
                self._unchecked.append(f"the samples of closing {close_id}, roll-up {rollup_id}: {extract.fault}")
            for row in extract.rows:
                found.setdefault(identity(row), []).append(Elsewhere(row, rollup_id, close_id, later))
        return found

    async def _closings(self) -> dict[str, datetime]:
        """The tenant's closings that billing knows of, and up to when each reaches."""
        pages = await every(
            lambda cursor: self._ask(registry.QUERY_INVOICES, InvoicesQuery(cursor=cursor)), lambda page: [page]
        )
        held = {each.close_id: each.period_end for page in pages for each in page.held}
        return held | {each.close_id: each.cutoff for page in pages for each in page.invoices}


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
    asked = pages(lambda cursor: told_by(session, registry.QUERY_INVOICES, InvoicesQuery(cursor=cursor), tenant))
    async for page in asked:
        found += [invoice for invoice in page.invoices if is_named(invoice)]
        if name is None and found:
            break
    if name is not None and len(found) > 1:
        msg = f"invoice {name!r} is the beginning of {len(found)} ids: give more of it"
        raise CliError(msg)
    if not found:
        what = "no invoice yet" if name is None else f"no invoice with the number or id {name!r}"
        msg = f"{what}{'' if tenant == NO_KEY else f' for tenant {tenant}'}: see `farside bill list`"
        raise CliError(msg)
    return found[0]
