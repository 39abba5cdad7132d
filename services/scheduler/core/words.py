"""Every reason the scheduler gives, in words and in figures: the thing, the value, the remedy."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from contracts.attempts import ExitCause
from contracts.base import INT64_MAX, Open, Priority, Reason, ReasonCode
from contracts.jobs import JobSpec
from services.scheduler.core.model import Attempt, Exited, Job, Limits, MemberRun

MS_PER_HOUR = 3_600_000
CARD = 1_000_000
KIB = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MAX_MESSAGE_CHARS = 1024
NAMED = 4


def reason(
    code: Open[ReasonCode],
    message: str,
    resource: str | None = None,
    *,
    used: int | None = None,
    asked: int | None = None,
    allowed: int | None = None,
) -> Reason:
    """A reason whose text and figures fit their fields."""
    return Reason(
        code=code,
        message=message[:MAX_MESSAGE_CHARS],
        resource=resource,
        used=None if used is None else min(used, INT64_MAX),
        asked=None if asked is None else min(asked, INT64_MAX),
        allowed=None if allowed is None else min(allowed, INT64_MAX),
    )


def gpu_hours(gpu_ms: int) -> str:
    """Milliseconds as hours: as many decimals as it takes, at most four, rounded down."""
    hours = (Decimal(gpu_ms) / MS_PER_HOUR).quantize(Decimal("0.0001"), rounding="ROUND_DOWN")
    return f"{hours.normalize():f}"


def size(value: int) -> str:
    """Bytes in the largest binary unit that tells them exactly or nearly so: `80 GiB`, `1.5 TiB`, `1023 B`."""
    amount, unit = float(value), 0
    while amount >= KIB and unit < len(UNITS) - 1:
        amount, unit = amount / KIB, unit + 1
    return f"{round(amount, 1):g} {UNITS[unit]}" if amount < KIB else f"{amount:.0f} {UNITS[unit]}"


def amount_of(resource: str, value: int) -> str:
    """An amount in words, in the unit that job files use; bytes in binary units, parts of cards as cards."""
    if resource == "card_millionths":
        return f"{value / CARD:g} card{'' if value == CARD else 's'}"
    if resource == "memory_bytes":
        return f"{size(value)} of memory"
    if resource in _COUNTED:
        return f"{value} {resource if value != 1 else resource.removesuffix('s')}"
    return f"{value} {resource}"


_COUNTED = frozenset({"cards", "members", "slots", "jobs", "nodes"})


# ---- refused ---------------------------------------------------------------------------------------------------------


def unknown_tenant(tenant: str) -> Reason:
    """No tenant file names it."""
    return reason(ReasonCode.UNKNOWN_TENANT, f"tenant {tenant} is not known here: ask an operator to add its file")


def too_large(size_bytes: int, allowed_bytes: int) -> Reason:
    """A job's description is no place for data."""
    text = (
        f"the job's description is {size_bytes} bytes, {allowed_bytes} are allowed: put code into the artefact and "
        "data into a dataset"
    )
    return reason(ReasonCode.INVALID, text, "spec_bytes", asked=size_bytes, allowed=allowed_bytes)


def too_many_seats(spec: JobSpec, size_bytes: int, allowed_bytes: int) -> Reason:
    """The list of members would not fit a message."""
    text = (
        f"{spec.members} members with {spec.resources.cards} cards each make a list of {size_bytes} bytes, "
        f"{allowed_bytes} are allowed: ask for fewer members"
    )
    return reason(ReasonCode.INVALID, text, "members_bytes", asked=size_bytes, allowed=allowed_bytes)


def too_many_offers(spec: JobSpec, size_bytes: int, allowed_bytes: int) -> Reason:
    """Each member is offered its place with the list of all of them."""
    text = (
        f"{spec.members} members, each told of all {spec.members}, make offers of {size_bytes} bytes, {allowed_bytes} "
        "are allowed: ask for fewer members"
    )
    return reason(ReasonCode.INVALID, text, "offers_bytes", asked=size_bytes, allowed=allowed_bytes)


def too_much_memory(spec: JobSpec, asked_bytes: int, allowed_bytes: int) -> Reason:
    """More than any node could ever say it has."""
    text = (
        f"job {spec.name}: memory_bytes and huge_pages_bytes together are {asked_bytes}, at most {allowed_bytes} can "
        "be asked of one node: correct the quantities"
    )
    return reason(ReasonCode.INVALID, text, "memory_bytes", asked=asked_bytes, allowed=allowed_bytes)


def job_id_reused(job_id: str) -> Reason:
    """Another job has this id."""
    text = f"job_id {job_id} belongs to a job submitted earlier with another body: give each job a new UUIDv7"
    return reason(ReasonCode.JOB_ID_REUSED, text)


def priority_not_allowed(tenant: str, asked: Priority, top: Priority, *, by_kind: bool) -> Reason:
    """Above the tenant's top class; `by_kind`: the job states none, its kind does."""
    kind = " by the job's kind" if by_kind else ""
    text = f"tenant {tenant} asks priority {asked}{kind}, its top class is {top}: ask for {top} or lower"
    return reason(ReasonCode.PRIORITY_NOT_ALLOWED, text, "priority")


def checkpoint_required(spec: JobSpec, longest_s: int) -> Reason:
    """Long training must be able to resume."""
    text = (
        f"a {spec.kind} job of max_runtime_s {spec.max_runtime_s} needs checkpoints: state `checkpoint`, "
        f"or ask for at most {longest_s} s"
    )
    return reason(
        ReasonCode.CHECKPOINT_REQUIRED, text, "max_runtime_s", asked=spec.max_runtime_s or 0, allowed=longest_s
    )


def no_such_node_type(spec: JobSpec, resource: str, asked: int, allowed: int, what: str) -> Reason:
    """No node known, ready or not, could ever hold one member."""
    return reason(ReasonCode.NO_SUCH_NODE_TYPE, f"job {spec.name}: {what}", resource, asked=asked, allowed=allowed)


def in_other_pools(why: Reason, pools: Sequence[str]) -> Reason:
    """Nodes that would do are there, in pools that the tenant's file does not name."""
    return reason(why.code, f"{why.message}; {kept_in(pools)}", why.resource, asked=why.asked, allowed=why.allowed)


def pools_of(pools: Sequence[str]) -> str:
    """`pool big`; of many the first."""
    more = len(pools) - NAMED
    named = ", ".join(pools[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"pool {named}" if len(pools) == 1 else f"pools {named}"


def kept_in(pools: Sequence[str]) -> str:
    """Whose nodes would do."""
    if len(pools) == 1:
        return f"{pools_of(pools)} has such nodes, but the tenant's file does not name that pool"
    return f"{pools_of(pools)} have such nodes, but the tenant's file names none of them"


def gpu_hours_exceeded(tenant: str, used_ms: int, asked_ms: int, allowed_ms: int, when: str) -> Reason:
    """`used_ms` holds what was used this month and what running and waiting jobs may still use; `when` it would fit."""
    left = gpu_hours(max(0, allowed_ms - used_ms))
    text = (
        f"tenant {tenant} asks {gpu_hours(asked_ms)} GPU-hours, {left} left of {gpu_hours(allowed_ms)} this month: "
        f"{when}; shorten max_runtime_s, ask for fewer cards, or ask for a higher quota"
    )
    return reason(ReasonCode.QUOTA_EXCEEDED, text, "gpu_ms", used=used_ms, asked=asked_ms, allowed=allowed_ms)


def never_fits(tenant: str, resource: str, asked: int, allowed: int) -> Reason:
    """More at a time than the tenant may ever have."""
    text = f"tenant {tenant} asks {amount_of(resource, asked)} at a time, its quota is {allowed}: ask for at most that"
    return reason(ReasonCode.QUOTA_EXCEEDED, text, resource, asked=asked, allowed=allowed)


def exceeds_largest_quota(tenant: str, asked: int, allowed: int) -> Reason:
    """More cards at a time than the tenant may hold with all that it could borrow."""
    text = (
        f"tenant {tenant} asks {amount_of('cards', asked)} at a time and may never hold more than {allowed}, with all "
        "that its cohort could lend: ask for at most that"
    )
    return reason(ReasonCode.EXCEEDS_LARGEST_QUOTA, text, "cards", asked=asked, allowed=allowed)


def beyond_limit(spec: JobSpec, resource: str, asked: int, allowed: int) -> Reason:
    """More than the assessed limit of any node that has what it asks."""
    text = (
        f"job {spec.name} asks {asked} {_plain(resource)} on one node, those that could hold it are assessed to take "
        f"{allowed} at most: ask for less a member, or for other nodes"
    )
    return reason(ReasonCode.BEYOND_LIMIT, text, resource, asked=asked, allowed=allowed)


def image_not_listed(tenant: str, reference: str | None, listed: tuple[str, ...]) -> Reason:
    """The tenant's file lists what may run, as patterns."""
    what = "names no image" if reference is None else f"names image {reference}"
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    there = f"those of its file: {', '.join(listed[:NAMED])}{more}" if listed else "none: its file lists none"
    text = f"the job {what}, tenant {tenant} may run {there}"
    return reason(ReasonCode.IMAGE_NOT_ALLOWED, text, "image")


def image_bound(reference: str, field: str, bound: str | None, asked: str | None, job_id: str) -> Reason:
    """The reference stands for something else."""
    text = (
        f"image {reference} stands for {field} {bound or '(none)'} since job {job_id}, this job says "
        f"{asked or '(none)'}: build a new image under a new tag"
    )
    return reason(ReasonCode.IMAGE_NOT_ALLOWED, text, "image")


def image_for_other_dataset(reference: str, image: str, asked: str) -> Reason:
    """Image and job name two datasets."""
    text = f"image {reference} was built for dataset {image}, the job reads {asked}: name the same version in both"
    return reason(ReasonCode.IMAGE_NOT_ALLOWED, text, "dataset")


# ---- waiting ---------------------------------------------------------------------------------------------------------


def waiting_for_quota(tenant: str, resource: str, used: int, asked: int, allowed: int) -> Reason:
    """It fits the quota, but not beside what runs."""
    text = (
        f"tenant {tenant} has {used} of {amount_of(resource, allowed)} in use, {asked} more asked: waits for its own "
        "jobs"
    )
    return reason(ReasonCode.WAITING_FOR_QUOTA, text, resource, used=used, asked=asked, allowed=allowed)


def waiting_for_dataset(tenant: str, dataset: str) -> Reason:
    """Its dataset version is not staged."""
    text = f"dataset {dataset} of tenant {tenant} is not staged yet: request its transfer, or wait for it to complete"
    return reason(ReasonCode.WAITING_FOR_DATASET, text, "dataset")


def waiting_for_window(name: str, opens: datetime | None) -> Reason:
    """Outside of its hours."""
    when = "which never opens: correct the policy file" if opens is None else f"which opens at {opens:%Y-%m-%dT%H:%MZ}"
    return reason(ReasonCode.WAITING_FOR_WINDOW, f"waits for window {name}, {when}", "window")


def unknown_window(name: str, known: Iterable[str]) -> Reason:
    """No window of that name."""
    there = ", ".join(sorted(known))
    text = f"window {name} is not in the policy file (it has {there}): name one of these, or add it there"
    if not there:
        text = (
            f"window {name} is not known: no windows are defined; leave `window` out, or have an operator define it "
            "under `windows` in the policy file (FARSIDE_POLICY)"
        )
    return reason(ReasonCode.UNKNOWN_WINDOW, text, "window")


def tenant_suspended(tenant: str) -> Reason:
    """Its file says so."""
    return reason(ReasonCode.TENANT_SUSPENDED, f"tenant {tenant} is suspended: ask an operator")


def on_hold(why: str) -> Reason:
    """Held by request."""
    return reason(ReasonCode.ON_HOLD, why or "asked for, without a reason: release it to let it run")


def held_later(attempt: Attempt, why: str) -> Reason:
    """Held while it has an attempt."""
    text = f"held{f' ({why})' if why else ''}: attempt {attempt.number} goes on, and the job is not placed again"
    return reason(ReasonCode.ON_HOLD, text)


def _plain(resource: str) -> str:
    return resource.replace("_", " ")


# ---- stopped and ended -----------------------------------------------------------------------------------------------


def cancelled(why: str) -> Reason:
    """Ended by request."""
    return reason(ReasonCode.CANCELLED, why or "asked for, without a reason")


def completed(attempt: Attempt) -> Reason:
    """All members did their work."""
    nodes = ", ".join(dict.fromkeys(member.seat.node for member in attempt.members))
    return reason(ReasonCode.COMPLETED, f"attempt {attempt.number} ended with exit code 0 on {nodes}")


def exited(member: MemberRun, event: Exited) -> Reason:
    """The first member to end badly."""
    code = "" if event.exit_code is None else f", exit code {event.exit_code}"
    tail = f": {event.message}" if event.message else ""
    text = f"member {member.index} on {member.seat.node} ended ({event.cause}{code}){tail}"
    return reason(_CODES.get(event.cause, ReasonCode.NODE_LOST), text)


_CODES: dict[str, ReasonCode] = {
    ExitCause.FAILED: ReasonCode.MEMBER_FAILED,
    ExitCause.HUNG: ReasonCode.MEMBER_FAILED,
    ExitCause.MAX_RUNTIME: ReasonCode.MAX_RUNTIME,
    ExitCause.NEVER_STARTED: ReasonCode.NOT_CLAIMED,
}


def hung(member: MemberRun, silent_s: int) -> Reason:
    """No progress for too long."""
    text = f"member {member.index} on {member.seat.node} made no progress for {silent_s} s"
    return reason(ReasonCode.MEMBER_FAILED, text, "progress_s", used=silent_s)


def lost(node: str, member: MemberRun) -> Reason:
    """Its lease ran out."""
    return reason(ReasonCode.NODE_LOST, f"node {node} of member {member.index} is lost: its lease has run out")


def missing(member: MemberRun, grace_s: float) -> Reason:
    """The node came back without it."""
    text = f"node {member.seat.node} came back without member {member.index}, and no exit was heard for {grace_s:g} s"
    return reason(ReasonCode.NODE_LOST, text)


def draining(node: str, why: str) -> Reason:
    """An operator empties the node."""
    tail = f" ({why})" if why else ""
    return reason(ReasonCode.NODE_DRAINING, f"node {node} is being emptied{tail}: the job goes on elsewhere")


def silent(node: str) -> Reason:
    """on_partition: keep."""
    text = f"node {node} is silent; the job keeps running there (on_partition: keep) until the node returns"
    return reason(ReasonCode.NODE_SILENT, text)


def breaker(node: str) -> Reason:
    """Too many nodes silent at once."""
    text = f"node {node} is silent together with many others: requeueing is held until it is clear what failed"
    return reason(ReasonCode.BREAKER_OPEN, text)


def not_claimed(spec: JobSpec, member: MemberRun) -> Reason:
    """The start deadline has passed."""
    text = f"node {member.seat.node} did not claim member {member.index} within {spec.start_deadline_s} s"
    return reason(ReasonCode.NOT_CLAIMED, text, "start_deadline_s", allowed=spec.start_deadline_s)


def retries_exhausted(spec: JobSpec, last: Reason) -> Reason:
    """The job's own failures are too many."""
    if spec.retries == 0:
        return reason(ReasonCode.MEMBER_FAILED, last.message, "retries", used=0, allowed=0)
    text = f"{last.message}; all {spec.retries} retries are used"
    return reason(ReasonCode.RETRIES_EXHAUSTED, text, "retries", used=spec.retries, allowed=spec.retries)


def too_many_losses(losses: int, limits: Limits, last: Reason) -> Reason:
    """Infrastructure losses are not the job's fault, but they end somewhere."""
    text = f"{last.message}; {losses} attempts were lost, {limits.max_losses} are allowed"
    return reason(last.code, text, "losses", used=losses, allowed=limits.max_losses)


def stray(job: Job, attempt: int) -> str:
    """Why attempt `attempt` has no right to run."""
    if job.finished:
        return f"attempt {attempt} may not run: job {job.spec.job_id} has {job.outcome}"
    if attempt < job.attempts or job.attempt is None:
        return f"attempt {attempt} is over: job {job.spec.job_id} is {job.phase} after {job.attempts} attempts"
    return f"attempt {attempt} of job {job.spec.job_id} has no claim to run: the job is at attempt {job.attempts}"
