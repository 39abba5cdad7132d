"""Small parts of the agent: segments and chunks of a log, cache, unpacking, cards, lease, settings."""

import asyncio
import gzip
import io
import os
import tarfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.attempts import ProgressPoint
from contracts.jobs import Resources
from contracts.nodes import Card, CardSource
from services.agent import handoff, proctree, task
from services.agent.activity import Activity
from services.agent.cache import Cache
from services.agent.core.model import AttemptKey
from services.agent.errors import InputError
from services.agent.executor import Gone, ProcessExecutor
from services.agent.handoff import LogBound, Plan
from services.agent.lease import LeaseKeeper
from services.agent.logs import next_chunk
from services.agent.places import Places
from services.agent.ports import Ports
from services.agent.probe.driver import Driver, Nvml
from services.agent.probe.facts import facts
from services.agent.progress import ProgressBuffer
from services.agent.segments import SegmentWriter
from services.agent.settings import AgentSettings, DeclaredCard
from services.agent.unpack import Bound, unpack
from tests.unit.agent.test_core import RUN
from tests.waiting import until, until_sync

SMALL = LogBound(head_bytes=100, tail_bytes=40, segment_bytes=16)
KEY = AttemptKey("00000000-0000-7000-8000-00000000000a", 1, 0)


def settings(tmp_path: Path, **more: Any) -> AgentSettings:
    return AgentSettings(node="n", state_dir=tmp_path / "state", **more)


def read_all(folder: Path, bound: LogBound, *, whole: bool) -> bytes:
    offset, text = 0, b""
    while chunk := next_chunk(folder, offset, bound, whole=whole):
        text, offset = text + chunk.data, chunk.end
    return text


@given(st.lists(st.binary(min_size=1, max_size=70), max_size=12))
def test_a_log_is_shipped_whole_up_to_its_bound(tmp_path_factory: pytest.TempPathFactory, writes: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("log") / "log"
    writer = SegmentWriter(folder, SMALL)
    for data in writes:
        writer.write(data)
    writer.close()
    everything = b"".join(writes)
    kept = sum(path.stat().st_size for path in folder.iterdir())
    assert kept <= SMALL.head_bytes + SMALL.tail_bytes + 2 * SMALL.segment_bytes
    assert read_all(folder, SMALL, whole=False) == everything[: SMALL.head_bytes]
    shipped = read_all(folder, SMALL, whole=True)
    if len(everything) <= SMALL.head_bytes + SMALL.tail_bytes:
        assert shipped == everything
    else:
        assert shipped.startswith(everything[: SMALL.head_bytes])
        assert shipped.endswith(everything[-SMALL.tail_bytes :])
        assert len(shipped) == len(everything) or b"bytes left out here" in shipped


def test_a_full_disk_drops_output_and_nothing_else(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "log", SMALL)
    writer.write(b"first")
    writer.close()
    writer.write(b"lost")
    assert read_all(tmp_path / "log", SMALL, whole=True) == b"first"


def tar_of(tmp_path: Path, *entries: tuple[str, bytes | str | None], mode: int = 0o644) -> Path:
    """An archive: text is a link's target, bytes a file's content, None a device."""
    path = tmp_path / "code.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.mode, info.uid = mode, 12345
            if content is None:
                info.type = tarfile.FIFOTYPE
                tar.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


ROOMY = Bound(total_bytes=1 << 20, files=100)


def test_code_is_unpacked_as_this_user(tmp_path: Path) -> None:
    archive = tar_of(tmp_path, ("a/b.py", b"x"), ("link", "a/b.py"), mode=0o4755)
    unpack(archive, tmp_path / "work", ROOMY)
    file = tmp_path / "work" / "a" / "b.py"
    assert file.read_bytes() == b"x"
    assert file.stat().st_uid == os.getuid()
    assert file.stat().st_mode & 0o7777 in (0o755, 0o700, 0o750)
    assert (tmp_path / "work" / "link").read_bytes() == b"x"


@pytest.mark.parametrize(
    "entries",
    [
        [("../evil", b"x")],
        [("/etc/evil", b"x")],
        [("out", "../.."), ("out/evil", b"x")],
        [("out", "/tmp")],  # noqa: S108 - the archive's own idea
        [("s/d/up", "../.."), ("s/d/up/../evil", b"x")],
        [("a", "b"), ("b", "."), ("a/../../evil", b"x")],
        [("pipe", None)],
        [("big", b"x" * (1 << 20) + b"y")],
        [("twice", b"x"), ("twice", b"y")],
        [(f"f{n}", b"") for n in range(101)],
    ],
)
def test_code_that_would_do_harm_is_refused(tmp_path: Path, entries: list[tuple[str, bytes | str | None]]) -> None:
    with pytest.raises(InputError, match="artefact"):
        unpack(tar_of(tmp_path, *entries), tmp_path / "deep" / "work", ROOMY)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x1f\x8b\x08\x00cut"])
def test_code_that_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with pytest.raises(InputError, match=r"x\.tar\.gz cannot be unpacked"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "work", ROOMY)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_that_would_fill_the_memory_is_refused_unread(tmp_path: Path, kind: bytes) -> None:
    """64 MB of zeros are 64 kB in the store, 2 TB are 2 GB: the agent of all jobs on the node would die of them."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 64 << 20
    with gzip.open(tmp_path / "x.tar.gz", "wb", compresslevel=1) as file:
        file.write(header.tobuf())
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="a header of 67108864 bytes"):
            unpack(tmp_path / "x.tar.gz", tmp_path / "work", ROOMY)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_headers_without_an_end_are_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 0
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(header.tobuf() * 5000)
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "work", ROOMY)


async def test_the_cache_fills_once_and_drops_the_oldest_that_nobody_uses(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 250)
    filled: list[str] = []

    async def entry(name: str) -> Path:
        async def fill(part: Path) -> None:
            filled.append(name)
            (part / "file").write_bytes(b"x" * 100)

        return await cache.get(name, 100, fill)

    cache.pin("a")
    first, again = await asyncio.gather(entry("a"), entry("a"))
    assert first == again
    assert filled == ["a"]
    os.utime(first, (1, 1))
    await entry("b")
    os.utime(tmp_path / "cache" / "b", (2, 2))
    await entry("c")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["a", "c"]
    assert cache.name_of(str(first / "file")) == "a"
    assert cache.name_of("/elsewhere") is None
    assert (first / "file").stat().st_mode & 0o222 == 0
    cache.unpin("a")
    os.utime(first, (1, 1))
    await entry("d")
    assert not first.exists()


async def test_the_cache_shows_nothing_half_filled_and_refuses_what_never_fits(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 250)

    async def fail(part: Path) -> None:
        (part / "half").write_bytes(b"x")
        msg = "the store went away"
        raise OSError(msg)

    with pytest.raises(OSError, match="went away"):
        await cache.get("a", 10, fail)
    assert not (tmp_path / "cache" / "a").exists()
    cache.clear_parts()
    assert not list((tmp_path / "cache").iterdir())
    with pytest.raises(InputError, match="the node's cache holds 250"):
        await cache.get("huge", 251, fail)


class _FakeNvml:
    """Two cards, or a driver that is not there."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool) -> None:
        self.driver = driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: object) -> str | bytes:  # noqa: N802
        del handle
        return b"NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: object) -> str | bytes:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> Any:  # noqa: N802
        del handle
        return SimpleNamespace(total=141 << 30)


def test_seen_cards_stand_before_declared_ones(tmp_path: Path) -> None:
    node = settings(tmp_path, declared_cards=(DeclaredCard(model="A100", memory_bytes=1),))
    seen = facts(node, Driver(cast("Nvml", _FakeNvml(driver=True)))).cards
    assert [(card.index, card.uuid, card.model, card.source) for card in seen] == [
        (0, "GPU-0", "NVIDIA H200", CardSource.NVML),
        (1, "GPU-1", "NVIDIA H200", CardSource.NVML),
    ]
    declared = facts(node, Driver(cast("Nvml", _FakeNvml(driver=False)))).cards
    assert [(card.index, card.model, card.source) for card in declared] == [(0, "A100", CardSource.DECLARED)]
    assert facts(settings(tmp_path), Driver(None)).cards == []


def test_real_cards_are_named_by_uuid_and_declared_ones_by_index() -> None:
    card = Card(index=1, uuid="GPU-1", model="H200", memory_bytes=1, source=CardSource.NVML)
    assert task.card_variables([1], [card]) == {"FARSIDE_CARDS": "1", "CUDA_VISIBLE_DEVICES": "GPU-1"}
    declared = card.model_copy(update={"source": CardSource.DECLARED})
    assert task.card_variables([1], [declared])["CUDA_VISIBLE_DEVICES"] == "1"
    assert task.card_variables([], [card]) == {"FARSIDE_CARDS": "", "CUDA_VISIBLE_DEVICES": ""}


def test_a_member_is_told_its_share_of_a_card_and_one_with_whole_cards_nothing() -> None:
    card = Card(index=0, uuid="GPU-0", model="H200", memory_bytes=80 << 30, source=CardSource.NVML)
    whole = RUN.members[0]
    assert task.share_variables(RUN, [card]) == {}
    half = whole.model_copy(update={"share_milli": 500, "share_millionths": 500_000})
    assert task.share_variables(RUN.model_copy(update={"members": [half]}), [card]) == {
        "FARSIDE_CARD_SHARE_MILLI": "500",
        "FARSIDE_CARD_SHARE_BYTES": str(40 << 30),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40960M",
    }


def test_a_share_by_memory_is_told_as_the_bytes_that_were_asked_for() -> None:
    card = Card(index=0, uuid="GPU-0", model="T4", memory_bytes=46_068 << 20, source=CardSource.NVML)
    resources = Resources(cards=1, share_memory_bytes=1 << 20)
    tiny = RUN.members[0].model_copy(update={"share_milli": 1, "share_millionths": 22})
    run = RUN.model_copy(update={"members": [tiny], "spec": RUN.spec.model_copy(update={"resources": resources})})
    told = task.share_variables(run, [card])
    assert (told["FARSIDE_CARD_SHARE_BYTES"], told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]) == (str(1 << 20), "0=1M")
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "1", "none at all would stop the task"


async def test_a_lease_counts_from_the_sending_and_a_lapse_raises_its_epoch(tmp_path: Path) -> None:
    keeper = LeaseKeeper(tmp_path / "lease.json", 0.5)
    assert not keeper.valid
    sent = proctree.boottime()
    await keeper.renew(sent)
    assert (keeper.valid, keeper.epoch) == (True, 1)
    lease = handoff.read_lease(tmp_path / "lease.json")
    assert lease is not None
    assert lease.deadline == sent + 0.5
    await keeper.renew(sent - 0.2)
    assert handoff.read_lease(tmp_path / "lease.json") == lease, "an older heartbeat shortens nothing"
    await keeper.renew(sent - 10)
    assert keeper.epoch == 1, "an acknowledgement that came too late renews nothing"
    heir = LeaseKeeper(tmp_path / "lease.json", 0.5)
    heir.load()
    assert (heir.valid, heir.epoch) == (True, 1)
    await until(lambda: not heir.valid)
    waiting = asyncio.create_task(heir.wait_valid())
    await heir.renew(proctree.boottime())
    assert await waiting == 2
    assert heir.end_of(1) == sent + 0.5, "when the lease before lapsed is known"
    renewed = handoff.read_lease(tmp_path / "lease.json")
    assert renewed is not None
    assert (heir.end_of(2), heir.end_of(0), heir.end_of(3)) == (renewed.deadline, None, None)
    third = LeaseKeeper(tmp_path / "lease.json", 0.5)
    assert third.end_of(0) is None
    third.load()
    assert third.end_of(1) == sent + 0.5


def test_two_attempts_are_never_promised_the_same_address() -> None:
    ports = Ports("127.0.0.1")
    other = AttemptKey(KEY.job_id, 2, 0)
    first, second = ports.hold(KEY), ports.hold(other)
    assert first != second
    ports.release(KEY)
    assert ports.hold(KEY, first) == first
    ports.release(KEY)
    ports.release(other)


def test_points_sent_again_are_counted_once() -> None:
    buffer = ProgressBuffer(serial=1)
    points = [(n, ProgressPoint(step=n)) for n in range(4)]
    buffer.add(points[:3])
    buffer.add(points)
    taken, serial = buffer.take()
    assert ([point.step for point in taken], serial) == ([2, 3], 3)
    buffer.put_back(taken)
    assert buffer.take() == (taken, 3)
    assert buffer.empty


def test_silence_does_not_count_while_something_is_under_way() -> None:
    activity = Activity()
    activity.begin()
    assert activity.silent_s() == 0.0
    activity.end()
    first = activity.silent_s()
    assert first >= 0.0


def test_sockets_have_short_paths_whatever_the_state_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    node = AgentSettings(node="n", state_dir=deep, runtime_dir=Path("/run/user/1000"))
    socket = Places(node).socket(KEY)
    assert len(str(socket)) < 100
    assert socket != Places(node).socket(AttemptKey(KEY.job_id, 2, 0))


def test_the_grace_lies_inside_the_lease(tmp_path: Path) -> None:
    node = settings(tmp_path)
    assert node.lease_grace_s(3600) == 60.0
    assert node.lease_grace_s(10) == 10.0
    assert node.lease_lead_s == 1.0
    short = settings(tmp_path, heartbeat_s=0.5, suspect_s=1, lease_s=4, lost_s=5)
    assert short.lease_grace_s(10) + short.lease_lead_s < 4


@pytest.mark.parametrize(
    "wrong", [{"node": "Central_1"}, {"lost_s": 1.0}, {"pending_saves": 0}, {"executor": "magic"}, {"colour": "red"}]
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AgentSettings.model_validate({"node": "n", "state_dir": tmp_path, **wrong})


def test_shims_may_be_spawned_on_threads_while_others_are_looked_at(tmp_path: Path) -> None:
    executor = ProcessExecutor()
    plan = Plan(("true",), {"PATH": os.environ["PATH"]}, str(tmp_path), SMALL, 1.0, None, None)
    folders = [tmp_path / str(number) for number in range(24)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(8) as pool:
        spawning = [pool.submit(executor.spawn, folder, plan) for folder in folders]
        until_sync(lambda: [executor.look(f) for f in folders] and all(s.done() for s in spawning), 60.0)
        for future in spawning:
            future.result()
    until_sync(lambda: all(isinstance(executor.look(folder), Gone) for folder in folders), 60.0)
    until_sync(lambda: executor.collect() == 0, 10.0)
