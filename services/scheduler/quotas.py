"""What tenants use of their quotas, as they may be asked for it."""

from contracts.queue import QuotaLine, QuotaPage, QuotaQuery, QuotaResource, TenantQuota
from contracts.registry import NO_KEY
from contracts.requests import ProblemCode
from libs.bus import Problem
from libs.db import Connection
from services.scheduler import store
from services.scheduler.core import quota
from services.scheduler.core.model import CARD, SHARE_PER_MILLI
from services.scheduler.core.quota import Tenant
from services.scheduler.desk import Desk

CARD_MILLI = 1000


async def page(conn: Connection, desk: Desk, key: str, query: QuotaQuery) -> QuotaPage:
    """Quotas of the tenant `key`, or of all. Raises Problem for a tenant without a file."""
    known = desk.book.tenants
    if key != NO_KEY and key not in known:
        msg = f"tenant {key} is not known here: ask an operator to add its file"
        raise Problem(ProblemCode.NOT_FOUND, msg)
    names = [key] if key != NO_KEY else [name for name in sorted(known) if name > (query.cursor or "")]
    shown = [await _tenant(conn, desk, known[name]) for name in names[: query.limit]]
    cursor = shown[-1].tenant if len(names) > query.limit else None
    return QuotaPage(tenants=shown, as_of=desk.clock.now(), cursor=cursor)


async def _tenant(conn: Connection, desk: Desk, tenant: Tenant) -> TenantQuota:
    now, quotas = desk.clock.now(), tenant.quotas
    standing = await store.load_standing(conn, tenant.tenant, now)
    used_ms, counted_ms = quota.used_ms(standing, now), quota.counted_ms(standing, now)
    held, attempts = desk.snapshot.held(tenant.tenant)
    waiting = [row.demand for row in desk.snapshot.line.jobs.values() if row.tenant == tenant.tenant]
    asked = sum(demand.members * demand.cards * demand.share for demand in waiting)
    borrowed = max(0, held - quotas.guarantee * CARD)
    return TenantQuota(
        tenant=tenant.tenant,
        version=tenant.version,
        suspended=tenant.suspended,
        top_priority=quotas.top_priority,
        cohort=tenant.cohort,
        pools=list(tenant.pools),
        lines=[
            QuotaLine(
                resource=QuotaResource.GPU_MS, used=used_ms, committed=counted_ms - used_ms, limit=quotas.gpu_ms_month
            ),
            QuotaLine(
                resource=QuotaResource.CARD_MILLI,
                used=held // SHARE_PER_MILLI,
                committed=asked // SHARE_PER_MILLI,
                limit=quotas.most_cards * CARD_MILLI,
                guaranteed=quotas.guarantee * CARD_MILLI,
                borrowed=borrowed // SHARE_PER_MILLI,
            ),
            QuotaLine(resource=QuotaResource.JOBS, used=attempts, committed=len(waiting), limit=quotas.concurrent_jobs),
        ],
    )
