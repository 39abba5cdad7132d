"""What the shim is told to run: the job's command in the environment of its attempt.

In: the attempt, its folder, the node's cards. Out: a plan. Nothing of the agent's own environment goes into it but the
search path and the language; the job's variables cannot replace Farside's.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from contracts.jobs import CARD_MILLI, CARD_MILLIONTHS
from contracts.nodes import Card, CardSource
from contracts.work import WorkRun
from libs.sdk.protocol import SOCKET_ENV, JobInfo, RestoreInfo
from services.agent import places
from services.agent.core.model import Attempt, own_member
from services.agent.executor import IMPORT_ROOT
from services.agent.handoff import LeaseTerms, LogBound, Plan
from services.agent.settings import MIB, AgentSettings

PASSED_ON = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_MPS_PIPE_DIRECTORY")
PYTHON_NAMES = frozenset({"python", "python3"})


def log_bound(settings: AgentSettings) -> LogBound:
    """What is kept of a task's output."""
    return LogBound(settings.log_head_bytes, settings.log_tail_bytes, settings.log_segment_bytes)


def plan(
    attempt: Attempt, folder: Path, socket: Path, cards: Sequence[Card], lease: Path, settings: AgentSettings
) -> Plan:
    """The plan of a member that may start. Without a lease where the job keeps running unseen."""
    assert attempt.run is not None, "only an offered attempt is started"
    assert attempt.epoch is not None, "only a claimed attempt is started"
    run = attempt.run
    terms = LeaseTerms(str(lease), attempt.epoch, settings.lease_grace_s(run.spec.stop_grace_s), settings.lease_lead_s)
    return Plan(
        command=command(run.spec.command),
        env=environment(attempt, run, folder, socket, cards),
        work=str(folder / places.WORK),
        log=log_bound(settings),
        grace_s=float(run.spec.stop_grace_s),
        max_runtime_s=run.spec.max_runtime_s,
        lease=None if keeps_running(run) else terms,
    )


def keeps_running(run: WorkRun) -> bool:
    """Whether the attempt goes on while its node is out of sight."""
    return run.spec.on_partition == "keep"


def command(words: Sequence[str]) -> tuple[str, ...]:
    """The job's command; a bare `python` is the agent's own, which has the SDK."""
    first = sys.executable if words[0] in PYTHON_NAMES else words[0]
    return (first, *words[1:])


def environment(attempt: Attempt, run: WorkRun, folder: Path, socket: Path, cards: Sequence[Card]) -> dict[str, str]:
    """The task's environment variables."""
    job = run.spec.env
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "HOME": str(folder / places.WORK),
        "TMPDIR": str(folder / places.TEMPORARY),
        "PYTHONUNBUFFERED": "1",
        **job,
        "PATH": _joined(str(Path(sys.executable).parent), job.get("PATH") or os.environ.get("PATH", os.defpath)),
        "PYTHONPATH": _joined(str(IMPORT_ROOT), job.get("PYTHONPATH", "")),
        **_farside(attempt, run, socket),
        **card_variables(own_member(run).cards, cards),
        **share_variables(run, cards),
    }


def card_variables(held: Sequence[int], cards: Sequence[Card]) -> dict[str, str]:
    """Which cards the task sees. Real ones go by UUID, since two libraries may number them differently."""
    by_index: Mapping[int, Card] = {card.index: card for card in cards}
    visible = [
        by_index[index].uuid if index in by_index and by_index[index].source is CardSource.NVML else str(index)
        for index in held
    ]
    return {"FARSIDE_CARDS": ",".join(map(str, held)), "CUDA_VISIBLE_DEVICES": ",".join(visible)}


def share_variables(run: WorkRun, cards: Sequence[Card]) -> dict[str, str]:
    """How much of its card a member may use that holds a part of it; nothing for whole cards.

    The task is told. Where NVIDIA's MPS serves the card, MPS keeps it to the threads and the memory as well; on its
    own a driver keeps nobody to a share.
    """
    member = own_member(run)
    if member.share_milli is None:
        return {}
    memory = next((card.memory_bytes for card in cards if card.index in member.cards), 0)
    millionths = member.share_millionths or member.share_milli * (CARD_MILLIONTHS // CARD_MILLI)
    share_bytes = run.spec.resources.share_memory_bytes or memory * millionths // CARD_MILLIONTHS
    return {
        "FARSIDE_CARD_SHARE_MILLI": str(member.share_milli),
        "FARSIDE_CARD_SHARE_BYTES": str(share_bytes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, millionths * 100 // CARD_MILLIONTHS)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={max(1, share_bytes // MIB)}M",
    }


def job_info(attempt: Attempt, folder: Path, serial: int) -> JobInfo:
    """What the SDK is told at `attach`."""
    assert attempt.run is not None, "only an offered attempt has a task"
    run, inputs = attempt.run, attempt.inputs
    restore = None
    if inputs.restore_step is not None and inputs.restore_file is not None:
        restore = RestoreInfo(inputs.restore_step, inputs.restore_file)
    return JobInfo(
        job_id=run.job_id,
        name=run.spec.name,
        tenant=run.tenant,
        attempt=run.attempt,
        member=run.member,
        members=len(run.members),
        cards=tuple(own_member(run).cards),
        seed=run.spec.seed,
        interval_steps=None if run.spec.checkpoint is None else run.spec.checkpoint.interval_steps,
        rendezvous=attempt.rendezvous,
        dataset=inputs.dataset,
        folder=str(folder / places.CHECKPOINTS),
        restore=restore,
        serial=serial,
    )


def _farside(attempt: Attempt, run: WorkRun, socket: Path) -> dict[str, str]:
    values = {
        SOCKET_ENV: str(socket),
        "FARSIDE_JOB": run.job_id,
        "FARSIDE_TENANT": run.tenant,
        "FARSIDE_ATTEMPT": str(run.attempt),
        "FARSIDE_MEMBER": str(run.member),
        "FARSIDE_MEMBERS": str(len(run.members)),
        "FARSIDE_RENDEZVOUS": attempt.rendezvous or "",
        "FARSIDE_DATASET": attempt.inputs.dataset or "",
    }
    return {name: value for name, value in values.items() if value}


def _joined(first: str, rest: str) -> str:
    return os.pathsep.join(part for part in (first, rest) if part)
