"""Submissions: whether one becomes a job, judged in one transaction under the lock of its tenant."""

import hashlib
import json
import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from contracts import registry
from contracts.base import NAME_PATTERN, UUID_PATTERN, Priority, Reason, ReasonCode
from contracts.deadletters import DeadReason
from contracts.jobs import JobRejected, JobSpec
from libs.bus import App, Event, Invalid, Tx, actor_of
from libs.db import Connection
from libs.kit.logs import get_logger
from libs.telemetry import context
from services.scheduler import allotments, store
from services.scheduler.core import admission, quota, words
from services.scheduler.core.admission import NodeShape, Terms
from services.scheduler.core.model import Intent
from services.scheduler.core.quota import CohortHours, Tenant
from services.scheduler.desk import Desk
from services.scheduler.effects import carry_out
from services.scheduler.memory.tenancy import reach_cards
from services.scheduler.snapshot import shape_of
from services.scheduler.store import Stored
from services.scheduler.tenants import TenantBook

MAX_SPEC_BYTES = 64 * 1024
MAX_NAME_CHARS = 256
_NAME = re.compile(NAME_PATTERN)
_UUID = re.compile(UUID_PATTERN)
PgTx = Tx[Connection]


@dataclass(frozen=True)
class Submissions:
    """The handler of submissions and what it looks at."""

    desk: Desk

    def register(self, app: App[Connection]) -> None:
        """The table of what is listened to."""
        app.on(registry.JOBS_SUBMIT, self.on_submit, on_invalid=self.on_invalid)

    async def on_submit(self, tx: PgTx, event: Event[JobSpec]) -> None:
        """Accept the job, refuse it with a reason, or do nothing when it is there already."""
        spec, now = event.body, self.desk.clock.now()
        await store.lock_job_id(tx.conn, spec.job_id)
        digest = body_sha256(spec)
        known = await store.load_job(tx.conn, spec.job_id)
        if known is not None and known.body_sha256 == digest:
            return
        await store.lock_tenant(tx.conn, event.key)
        shapes = await self.shapes(tx.conn)
        reason = await self.refusal(tx.conn, event.key, spec, shapes, now, taken=known is not None)
        if reason is not None:
            self._reject(tx, event.key, event.id, spec.job_id, spec.name, reason, actor_of(event))
            return
        if spec.image is not None:
            await store.bind_image(tx.conn, spec, spec.image, now)
        decision = admission.admit(spec, await self._intent(tx.conn, spec), now, self.desk.limits)
        trace = context.current()
        commit_ms = quota.commit_ms(spec, admission.share_milli(spec, shapes))
        stored = Stored(decision.job, digest, None if trace is None else trace.life, commit_ms)
        await carry_out(tx, stored, decision, actor=actor_of(event), limits=self.desk.limits, new=True)

    async def refusal(
        self, conn: Connection, key: str, spec: JobSpec, shapes: tuple[NodeShape, ...], now: datetime, *, taken: bool
    ) -> Reason | None:
        """Why the tenant `key` may not submit this, or None. `taken`: another job has its id."""
        size = len(spec.model_dump_json().encode())
        if size > MAX_SPEC_BYTES:
            return words.too_large(size, MAX_SPEC_BYTES)
        tenant = self.desk.book.get(key)
        if taken and tenant is not None:
            return words.job_id_reused(spec.job_id)
        bound = None if spec.image is None else await store.image_bound(conn, key, spec.image.reference)
        lent = None if tenant is None else await self._lent(conn, tenant, now)
        rules, tenants = self.desk.policies.rules, self.desk.book.tenants
        reach = None if tenant is None else reach_cards(rules, tenants, tenant)
        terms = Terms(shapes, frozenset(rules.windows), bound, lent, reach)
        standing = await store.load_standing(conn, key, now)
        return admission.refusal(spec, tenant, terms, standing, now)

    async def _lent(self, conn: Connection, tenant: Tenant, now: datetime) -> CohortHours | None:
        """What the tenant's cohort has of GPU-hours, if it may borrow of them; one borrower submits at a time."""
        if tenant.cohort is None or not tenant.quotas.borrow_gpu_ms:
            return None
        await store.lock_tenant(conn, f"cohort {tenant.cohort}")
        lenders = [other for other in self.desk.book.tenants.values() if other.cohort == tenant.cohort]
        standings = [await store.load_standing(conn, other.tenant, now) for other in lenders]
        counted = sum(quota.counted_ms(standing, now) for standing in standings)
        return CohortHours(tenant.cohort, sum(other.quotas.gpu_ms_month for other in lenders), counted)

    async def shapes(self, conn: Connection) -> tuple[NodeShape, ...]:
        """The different nodes known, those included that the cycle has not seen yet."""
        rules, snapshot = self.desk.policies.rules, self.desk.snapshot
        fresh = await allotments.nodes_of(conn, changed=snapshot.loaded)
        found = {shape_of(row, rules.pool_of(row.node)) for row in fresh}
        return snapshot.shapes(rules) if not found else tuple({*snapshot.shapes(rules), *found})

    async def _intent(self, conn: Connection, spec: JobSpec) -> Intent:
        """What was asked of the job before it came; forgotten from now on."""
        intent = await store.load_intent(conn, spec.tenant, spec.job_id)
        if intent != Intent():
            await store.delete_intent(conn, spec.tenant, spec.job_id)
        if intent.priority is not None and above_top(self.desk.book, spec.tenant, intent.priority) is not None:
            return replace(intent, priority=None)
        return intent

    def _reject(
        self, tx: PgTx, tenant: str, submission: str, job_id: str | None, name: str | None, reason: Reason, actor: str
    ) -> None:
        body = JobRejected(
            submission_id=submission,
            tenant=tenant,
            job_id=job_id,
            name=name,
            reason=reason,
            rejected_at=self.desk.clock.now(),
        )
        get_logger().info("job.rejected", job=job_id, tenant=tenant, reason=reason.code, detail=reason.message)
        tx.emit(registry.JOBS_REJECTED, body, key=tenant, subject=submission, sequence=1, actor=actor)

    async def on_invalid(self, tx: PgTx, invalid: Invalid) -> bool:
        """Tell the sender of a body that is no job; False when there is nobody to tell."""
        if invalid.id is None or _NAME.fullmatch(invalid.key) is None:
            return False
        mismatch = invalid.reason is DeadReason.KEY_MISMATCH
        code = ReasonCode.TENANT_MISMATCH if mismatch else ReasonCode.INVALID
        job_id, name = _named_in(invalid.data)
        reason = words.reason(code, invalid.message)
        self._reject(tx, invalid.key, invalid.id, job_id, name, reason, invalid.source or f"tenant/{invalid.key}")
        return True


def above_top(book: TenantBook, name: str, priority: Priority) -> Reason | None:
    """Why the tenant may not have a job of this class, or None."""
    tenant = book.get(name)
    return words.unknown_tenant(name) if tenant is None else quota.above_top(tenant, priority)


def body_sha256(spec: JobSpec) -> str:
    """Digest of what a submission states, whatever the order of its fields; fields that come later change none."""
    text = json.dumps(spec.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _named_in(data: bytes) -> tuple[str | None, str | None]:
    """The job_id and name of a body that failed, where they can be made out."""
    try:
        content: object = json.loads(data)
    except ValueError:
        return None, None
    if not isinstance(content, dict):
        return None, None
    fields = cast("dict[str, object]", content)
    job_id, name = fields.get("job_id"), fields.get("name")
    return (
        job_id if isinstance(job_id, str) and _UUID.fullmatch(job_id) else None,
        name[:MAX_NAME_CHARS] if isinstance(name, str) else None,
    )
