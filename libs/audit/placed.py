"""Where each sample's attempt was placed: the scheduler's word on node, cards and tier, beside what is billed."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from contracts.jobs import Member
from contracts.usage import UsageRolledUp, UsageRow
from libs.audit.findings import Difference, differs
from libs.audit.gathered import Attempt, Dossier, identity, words

Kind: TypeAlias = tuple[str, str, str]
Sums: TypeAlias = dict[str, tuple[int, int]]


def check_placed(dossier: Dossier) -> Iterator[Difference]:
    """Attempts, nodes and cards of the samples, what metering keeps of them, and the tiers of the roll-ups."""
    if dossier.published.reach.jobs is None:
        for job_id, attempt in _unplaced(dossier):
            where = f"job {job_id} attempt {attempt}"
            yield from differs("attempt that was never placed", where, "jobs.placed", "no such message")
    for row in _rows(dossier):
        yield from _check_place(dossier, row)
        yield from _check_origin(dossier, row)
    for rollup in dossier.rollups:
        yield from _check_tiers(dossier, rollup)


def unplaced(dossier: Dossier) -> Iterator[str]:
    """Attempts whose placement the stream no longer tells, in words."""
    reach = dossier.published.reach.jobs
    if reach is not None:
        for job_id, attempt in _unplaced(dossier):
            yield (
                f"node, cards and tier of job {job_id} attempt {attempt}: it was placed earlier than the stream JOBS "
                f"reaches back to ({reach})"
            )


def _rows(dossier: Dossier) -> Iterator[UsageRow]:
    for rollup in dossier.rollups:
        yield from dossier.extracts[rollup.rollup_id].rows


def _unplaced(dossier: Dossier) -> list[Attempt]:
    attempts = {(row.job_id, row.attempt) for row in _rows(dossier)}
    return sorted(attempts - dossier.published.placements.keys())


def _member(dossier: Dossier, row: UsageRow) -> Member | None:
    placement = dossier.published.placements.get((row.job_id, row.attempt))
    return None if placement is None else placement.members.get(row.member)


def _check_place(dossier: Dossier, row: UsageRow) -> Iterator[Difference]:
    """The sample is of a member, on its node, of one of its cards, under the model that was placed."""
    placement = dossier.published.placements.get((row.job_id, row.attempt))
    if placement is None:
        return
    where = words(identity(row))
    yield from differs("placement's tenant", where, placement.tenant, row.tenant)
    member = placement.members.get(row.member)
    if member is None:
        found = f"member {row.member}"
        yield Difference(
            what="sample's member", where=where, expected=f"one of {sorted(placement.members)}", found=found
        )
        return
    if row.card not in member.cards:
        yield Difference(what="sample's card", where=where, expected=f"one of {member.cards}", found=str(row.card))
    model = member.accelerator
    if model is not None and row.accelerator.casefold() != model.casefold():
        yield Difference(what="sample's accelerator", where=where, expected=model, found=row.accelerator)
    nodes = dossier.replay.nodes.get(identity(row), {member.node})
    if member.node not in nodes:
        yield Difference(what="sample's node", where=where, expected=member.node, found=", ".join(sorted(nodes)))


def _check_origin(dossier: Dossier, row: UsageRow) -> Iterator[Difference]:
    """What metering keeps beside the sample still goes with the invoice and the placement."""
    kept = dossier.origins.get(identity(row))
    if kept is None:
        return
    where, member = f"metering's samples, {words(identity(row))}", _member(dossier, row)
    yield from differs("sample's close_id", where, dossier.invoice.close_id, kept.close_id)
    if member is not None:
        yield from differs("sample's tier", where, member.tier.value, kept.tier)
        yield from differs("sample's node", where, member.node, kept.node)


def _check_tiers(dossier: Dossier, rollup: UsageRolledUp) -> Iterator[Difference]:
    """The quantities of each tier, by the placements of the samples; only of jobs whose placements are all known."""
    should, told = defaultdict[Kind, Sums](dict), defaultdict[Kind, Sums](dict)
    unknown = set[Kind]()
    for row in dossier.extracts[rollup.rollup_id].rows:
        kind, member = (row.job_id, str(row.item), row.accelerator), _member(dossier, row)
        if member is None:
            unknown.add(kind)
        else:
            _add(should[kind], member.tier.value, row.quantity, 1)
    for entry in rollup.entries:
        kind = (entry.job_id or "", str(entry.item), entry.accelerator or "")
        _add(told[kind], entry.tier or "", entry.quantity, entry.samples)
    for kind in sorted((should.keys() & told.keys()) - unknown):
        if _total(should[kind]) == _total(told[kind]):
            where = f"roll-up {rollup.rollup_id}, job {kind[0]} {kind[1]} {kind[2]}"
            yield from differs("roll-up's tiers", where, _shown(should[kind]), _shown(told[kind]))


def _add(sums: Sums, tier: str, quantity: int, samples: int) -> None:
    before = sums.get(tier, (0, 0))
    sums[tier] = (before[0] + quantity, before[1] + samples)


def _total(sums: Sums) -> tuple[int, int]:
    return sum(each[0] for each in sums.values()), sum(each[1] for each in sums.values())


def _shown(sums: Sums) -> str:
    return ", ".join(f"{tier} {quantity} in {samples} samples" for tier, (quantity, samples) in sorted(sums.items()))
