"""`farside bill close` and `verify`: an invoice is proven from what was measured, and each alteration is found."""

import gzip
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from contracts import registry
from contracts.invoices import Invoice
from contracts.usage import SampleOrigin, UsageRow
from deploy.local.ports import free_port
from libs.audit import Findings, identity
from libs.cli.errors import FAILED, UNREACHABLE, USAGE
from libs.cli.place import Place
from libs.cli.session import Session
from libs.cli.verify import verify
from libs.kit.settings import ServiceSettings
from tests.billing.books import Books, open_books
from tests.billing.commands import Ran, farside
from tests.billing.nodes import NODE, Job
from tests.billing.play import Billing, Closing, write_card

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def books(billing: Billing) -> AsyncGenerator[Books, None]:
    async with open_books(billing.stage) as made:
        yield made


def an_hour_ago() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)  # noqa: TID251 - windows of now


async def measured(books: Books, tenant: str, *minutes: int) -> Job:
    """A job that was placed, was measured around the change of an hour, and is in metering's books."""
    job = Job(books.stage.client, tenant, an_hour_ago())
    await job.place()
    books.open[tenant] += await job.measure(*(minutes or (-2, -1, 0, 1)))
    return job


async def close(books: Books, tenant: str) -> Invoice:
    ran = await farside(books.stage, "bill", "close", "--tenant", tenant, "--wait", "30", "--json")
    assert ran.status == 0, ran.err
    return Invoice.model_validate(ran.data["invoice"])


async def prove(books: Books, invoice: Invoice) -> Findings:
    """As the demo does it."""
    environment = books.stage.service.environment
    settings = ServiceSettings(
        s3_endpoint=environment["FARSIDE_S3_ENDPOINT"],
        s3_access_key=environment["FARSIDE_S3_ACCESS_KEY"],
        s3_secret_key=SecretStr(environment["FARSIDE_S3_SECRET_KEY"]),
        s3_bucket=environment["FARSIDE_S3_BUCKET"],
    )
    return await verify(Session(Place(settings, "the test"), books.stage.client), invoice, say=lambda _: None)


def named(findings: Findings) -> set[str]:
    return {each.what for each in findings.differences}


def more(row: UsageRow) -> UsageRow:
    return row.model_copy(update={"quantity": row.quantity + 1})


async def test_what_is_unaltered_is_ok(books: Books) -> None:
    await measured(books, "ok")
    invoice = await close(books, "ok")
    ran: Ran = await farside(books.stage, "bill", "verify", "ok-0001", "--json")
    assert ran.status == 0, ran.out
    assert ran.data["ok"]
    assert (ran.data["samples"], ran.data["measured"]) == (16, 16)
    assert ran.data["recomputed_total_micro"] == ran.data["invoice_total_micro"] == invoice.total_micro > 0
    assert "replaying the stream USAGE" in ran.err
    ran = await farside(books.stage, "bill", "verify", "--last", "--tenant", "ok")
    assert (ran.status, ran.out.splitlines()[-1].split()) == (0, ["verdict", "ok"])


async def test_a_store_that_does_not_answer_is_no_difference(books: Books) -> None:
    await measured(books, "away")
    await close(books, "away")
    nowhere = f"http://127.0.0.1:{free_port()}"
    ran = await farside(books.stage, "bill", "verify", "away-0001", FARSIDE_S3_ENDPOINT=nowhere)
    assert (ran.status, ran.out) == (UNREACHABLE, "")
    assert f"farside: object storage at {nowhere}: " in ran.err


async def test_a_second_invoice_is_proven_beside_the_first(books: Books) -> None:
    job = await measured(books, "twice")
    first = await close(books, "twice")
    books.refused += await job.measure(5)
    books.open["twice"] += await job.measure(2, 3)
    second = await close(books, "twice")
    for invoice in (first, second):
        findings = await prove(books, invoice)
        assert (findings.ok, findings.differences) == (True, [])
    assert (second.number, second.samples) == (2, 8)


async def test_a_row_altered_before_the_close_is_found(books: Books) -> None:
    await measured(books, "before")
    books.open["before"][0] = more(books.open["before"][0])
    invoice = await close(books, "before")
    findings = await prove(books, invoice)
    assert named(findings) >= {"sample as it was measured"}
    ran = await farside(books.stage, "bill", "verify", "before-0001")
    assert ran.status == FAILED
    assert "sample as it was measured: job " in ran.out


async def test_a_row_lost_before_the_close_is_found(books: Books) -> None:
    await measured(books, "lost")
    books.open["lost"].pop()
    assert named(await prove(books, await close(books, "lost"))) == {"measured row"}


async def test_a_row_altered_after_the_close_is_found(books: Books) -> None:
    await measured(books, "after")
    invoice = await close(books, "after")
    rollup = books.rollups[invoice.close_id][0].rollup_id
    books.samples[rollup][3] = more(books.samples[rollup][3])
    assert named(await prove(books, invoice)) == {"sample since the close"}


async def test_a_row_altered_in_an_extract_is_found(books: Books) -> None:
    await measured(books, "extract")
    invoice = await close(books, "extract")
    rollup = books.rollups[invoice.close_id][0]
    key = books.stage.store.key(rollup.extract)
    content = gzip.decompress(books.stage.store.get(key)).replace(b'"quantity":60000', b'"quantity":60001', 1)
    books.stage.store.put(key, gzip.compress(content, mtime=0))
    findings = await prove(books, invoice)
    assert named(findings) >= {"extract's sha256", "sample as it was measured", "roll-up's quantity"}
    assert any(rollup.extract in each.where for each in findings.differences)
    books.stage.store.delete([key])
    assert "extract" in named(await prove(books, invoice))


async def in_billing(billing: Billing, table: str, statement: str, *args: Any) -> None:
    """Alter what never changes, as one who may do everything could."""
    connection = await billing.connect()
    try:
        await connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        assert await connection.execute(statement, *args) == "UPDATE 1"
        await connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    finally:
        await connection.close()


async def test_a_row_altered_in_billing_s_lines_is_found(books: Books, billing: Billing) -> None:
    await measured(books, "lines")
    invoice = await close(books, "lines")
    await in_billing(
        billing,
        "lines",
        "UPDATE lines SET amount_micro = amount_micro + 1 WHERE invoice_id = $1 AND line = 1",
        invoice.invoice_id,
    )
    findings = await prove(books, invoice)
    assert named(findings) == {"line's amount_micro", "sum of amount_micro"}
    assert findings.differences[0].where.startswith("line 1, job ")


async def test_a_row_altered_in_billing_s_roll_ups_is_found(books: Books, billing: Billing) -> None:
    """The closing is held for want of a price while the roll-up is altered, and rated from it afterwards."""
    write_card(billing.rates, version=20, until="2026-02-01T00:00:00Z")
    await measured(books, "kept")
    ran = await farside(books.stage, "bill", "close", "--tenant", "kept", "--wait", "3")
    assert ran.status == FAILED
    assert "held: rate card standard version 20 has no price" in ran.err
    [held] = (await billing.page("kept")).held
    altered = "UPDATE rollups SET body = jsonb_set(body, '{entries,0,quantity}', '7') WHERE rollup_id = $1"
    await in_billing(billing, "rollups", altered, books.rollups[held.close_id][0].rollup_id)
    write_card(billing.rates, version=21)
    invoice = await billing.until_invoiced(Closing("kept", close_id=held.close_id))
    assert named(await prove(books, invoice)) >= {"line's quantity", "line's amount", "total_micro"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("period_start", "period_start - interval '1 hour'"),
        ("period_end", "period_end + interval '1 second'"),
        ("cutoff", "cutoff + interval '1 second'"),
        ("issued_at", "issued_at + interval '1 second'"),
        ("samples", "samples + 1"),
        ("number", "number + 40"),
        ("currency", "'EUR'"),
    ],
)
async def test_a_field_altered_in_billing_s_invoice_is_found(
    books: Books, billing: Billing, field: str, value: str
) -> None:
    tenant = f"field-{field.replace('_', '-')}"
    await measured(books, tenant)
    invoice = await close(books, tenant)
    statement = f"UPDATE invoices SET {field} = {value} WHERE invoice_id = $1"  # noqa: S608 - words of this test
    await in_billing(billing, "invoices", statement, invoice.invoice_id)
    [altered] = (await billing.page(tenant)).invoices
    findings = await prove(books, altered)
    issued = [each for each in findings.differences if each.where.endswith("invoices.issued")]
    assert [each.what for each in issued] == [f"invoice's {field}"]


async def test_values_that_no_contract_allows_are_told_in_words(books: Books, billing: Billing) -> None:
    await measured(books, "cloud")
    invoice = await close(books, "cloud")
    statement = "UPDATE lines SET tier = 'cloud' WHERE invoice_id = $1 AND line = 1"
    await in_billing(billing, "lines", statement, invoice.invoice_id)
    ran = await farside(books.stage, "bill", "verify", "cloud-0001")
    assert ran.status == FAILED
    assert "billing's lines: as they stand" in ran.out
    assert "tier Input should be 'central', 'remote' or 'shared' (it is 'cloud')" in ran.out
    assert "pydantic" not in ran.out + ran.err
    statement = "UPDATE invoices SET currency = 'usd' WHERE invoice_id = $1"
    await in_billing(billing, "invoices", statement, invoice.invoice_id)
    ran = await farside(books.stage, "bill", "verify", "cloud-0001")
    await in_billing(billing, "invoices", statement.replace("usd", "USD"), invoice.invoice_id)
    assert ran.status == FAILED
    assert "billing keeps what the contract of query.billing.invoices.v1 does not allow" in ran.err
    assert "(it is 'usd')" in ran.err


async def test_a_sample_that_a_second_closing_took_again_is_found_by_both(books: Books) -> None:
    await measured(books, "double")
    first = await close(books, "double")
    books.open["double"] += books.samples[books.rollups[first.close_id][0].rollup_id][:2]
    second = await close(books, "double")
    for invoice, when in ((first, "later"), (second, "earlier")):
        twice = [each for each in (await prove(books, invoice)).differences if each.what == "sample in another closing"]
        assert len(twice) == 2
        assert all(f"of the {when} closing" in each.found for each in twice)


async def test_what_is_kept_beside_a_sample_and_altered_is_found(books: Books) -> None:
    await measured(books, "beside")
    invoice = await close(books, "beside")
    row = books.samples[books.rollups[invoice.close_id][0].rollup_id][0]
    for name, value in (("tier", "cloud"), ("node", "remote-1"), ("close_id", None)):
        kept = SampleOrigin(node=NODE, tier="central", close_id=invoice.close_id)
        books.origins[identity(row)] = kept.model_copy(update={name: value})
        assert named(await prove(books, invoice)) == {f"sample's {name}"}


async def test_a_tier_other_than_that_of_the_placement_is_found(books: Books) -> None:
    job = Job(books.stage.client, "tier", an_hour_ago())
    await job.place(tier="shared")
    books.open["tier"] += await job.measure(0)
    invoice = await close(books, "tier")
    findings = await prove(books, invoice)
    assert named(findings) == {"roll-up's tiers", "sample's tier"}
    assert {each.expected.partition(" ")[0] for each in findings.differences} == {"shared"}


async def test_node_and_cards_other_than_those_of_the_placement_are_found(books: Books) -> None:
    job = Job(books.stage.client, "place", an_hour_ago())
    await job.place(node="remote-1", cards=[0])
    books.open["place"] += await job.measure(0)
    assert named(await prove(books, await close(books, "place"))) == {"sample's node", "sample's card"}


async def test_an_attempt_that_was_never_placed_is_found(books: Books) -> None:
    job = Job(books.stage.client, "unplaced", an_hour_ago())
    books.open["unplaced"] += await job.measure(0)
    assert named(await prove(books, await close(books, "unplaced"))) == {"attempt that was never placed"}


async def test_a_roll_up_altered_in_metering_is_found(books: Books) -> None:
    await measured(books, "rolled")
    invoice = await close(books, "rolled")
    rollups = books.rollups[invoice.close_id]
    entry = rollups[0].entries[0].model_copy(update={"team": "audio"})
    rollups[0] = rollups[0].model_copy(update={"entries": [entry, *rollups[0].entries[1:]]})
    assert "roll-up since it was published" in named(await prove(books, invoice))
    rollups.pop(0)
    assert {"roll-up since it was published", "roll-ups"} <= named(await prove(books, invoice))


async def test_what_was_heard_of_late_is_awaited_until_a_later_closing_has_it(books: Books) -> None:
    job = await measured(books, "awaited")
    late = await job.measure(5)
    first = await close(books, "awaited")
    books.open["awaited"] += late
    findings = await prove(books, first)
    assert (findings.ok, findings.later, findings.billed_later) == (True, 4, 0)
    await close(books, "awaited")
    findings = await prove(books, first)
    assert (findings.ok, findings.later, findings.billed_later) == (True, 0, 4)
    ran = await farside(books.stage, "bill", "verify", "awaited-0001")
    assert "4 rows measured in time, heard of late, in a later closing" in ran.out


async def test_nothing_used_makes_no_invoice(books: Books) -> None:
    ran = await farside(books.stage, "bill", "close", "--tenant", "idle", "--json")
    assert (ran.status, ran.data["invoice"], ran.data["closing"]["samples"]) == (0, None, 0)
    assert "nothing billable was ever measured for tenant idle" in ran.err
    ran = await farside(books.stage, "bill", "close", "--tenant", "idle")
    assert (ran.status, ran.out) == (0, "")
    assert "nothing was used since the last closing: no invoice is made" in ran.err


async def test_the_rate_card_may_be_one_s_own(books: Books, billing: Billing) -> None:
    await measured(books, "rates")
    invoice = await close(books, "rates")
    ran = await farside(books.stage, "bill", "verify", "rates-0001", "--rates", str(billing.rates))
    assert ran.status == 0, ran.out
    write_card(billing.rates, version=99)
    ran = await farside(books.stage, "bill", "verify", "rates-0001", "--rates", str(billing.rates))
    assert ran.status == USAGE
    assert f"(sha256 {invoice.rate_card_sha256})" in ran.err


async def test_windows_that_the_stream_has_lost_are_told(books: Books) -> None:
    """Last of all: the stream is cut behind what was measured."""
    await measured(books, "gone")
    invoice = await close(books, "gone")
    js = books.stage.client.js
    await js.purge_stream(registry.USAGE.name)
    findings = await prove(books, invoice)
    assert (findings.ok, findings.measured, len(findings.unreplayed)) == (True, 0, 16)
    assert [each.partition(":")[0] for each in findings.unchecked] == [
        "the closing as it was published",
        "2 roll-ups as published",
    ]
    await js.purge_stream(registry.JOBS.name)
    ran = await farside(books.stage, "bill", "verify", "gone-0001")
    assert ran.status == 0, ran.out
    assert "could not be checked: node, cards and tier of job " in ran.err
    assert "16 windows could not be replayed, being older than the stream" in ran.err
