"""`Store` against SeaweedFS: what it promises, and the troubles it exists for."""

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from deploy.local.ports import free_port
from libs.objects import (
    ChangedError,
    Created,
    DamagedError,
    Exists,
    MissingError,
    RefusedError,
    Store,
    StoreConfig,
    UnavailableError,
    digest_of,
    keys,
    multipart,
)
from libs.objects.wire import connect
from tests.objects.proxy import Faults, S3Proxy
from tests.servers import SeaweedServer

BUCKET = "objects-test"


def config_of(s3: SeaweedServer, endpoint: str | None = None) -> StoreConfig:
    return StoreConfig(endpoint or s3.endpoint, s3.access_key, SecretStr(s3.secret_key), BUCKET)


@pytest.fixture(scope="module")
def store(s3: SeaweedServer) -> Iterator[Store]:
    made = Store(config_of(s3))
    made.wait_ready("probes/test", 60)
    yield made
    made.close()


@pytest.fixture
def proxy(s3: SeaweedServer) -> Iterator[S3Proxy]:
    with S3Proxy(s3.ports["s3"]) as made:
        yield made


@pytest.fixture
def proxied(s3: SeaweedServer, proxy: S3Proxy, store: Store) -> Iterator[Store]:
    assert store.bucket == BUCKET
    made = Store(config_of(s3, proxy.endpoint))
    yield made
    made.close()


def test_put_reads_back_and_names_its_digest(store: Store) -> None:
    digest = store.put("a/b", b"hello")
    assert digest == digest_of(b"hello")
    assert store.get("a/b") == b"hello"
    assert store.digest("a/b") == digest
    assert store.head("a/b").size_bytes == 5


def test_put_refuses_a_source_that_is_not_what_was_promised(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "torn"
    path.write_bytes(b"half")
    with pytest.raises(DamagedError, match="was promised"):
        store.put("a/torn", path, digest_of(b"whole").sha256)
    with pytest.raises(MissingError):
        store.head("a/torn")


def test_tc10_an_empty_object_is_kept_and_read(store: Store, tmp_path: Path) -> None:
    store.put("empty/bytes", b"")
    source = tmp_path / "empty"
    source.touch()
    store.put("empty/file", source)
    assert store.get("empty/bytes") == b""
    assert store.get_to("empty/file", tmp_path / "back") == digest_of(b"")
    assert (tmp_path / "back").read_bytes() == b""
    store.copy("empty/file", "empty/copy", 0)
    assert [item.size_bytes for item in store.list("empty/")] == [0, 0, 0]


ODD_NAMES = [
    b"plus+ %&name",
    "é".encode(),
    "e\u0301".encode(),
    b"\xff\xfe not utf-8",
    b"back\\slash",
    b"percent%2Fenc",
    b"q?x=1#h",
    b"tab\tnewline\n",
    b"quote'\"<>",
    "snow\u2603 \U0001f680".encode(),
    b"dir/with space/file",
    b"*[b]{c}^`|~",
]


def test_tc8_odd_names_stay_apart_and_come_back_byte_for_byte(store: Store) -> None:
    for name in ODD_NAMES:
        store.put(f"odd/{keys.escape_path(name)}", name)
    listed = store.list("odd/")
    assert len(listed) == len(ODD_NAMES)
    for item in listed:
        assert store.get(item.key) == keys.unescape_path(item.key.removeprefix("odd/"))


@pytest.mark.parametrize("key", ["a//b", "/a", "a/", "a/./b", "a/../b", "a\\b", "a\0b", "\ud800", "", "x" * 1025])
def test_tc8_a_key_that_a_store_would_fold_is_refused(store: Store, key: str) -> None:
    with pytest.raises(RefusedError):
        store.put(key, b"x")


def test_tc14_the_etag_of_parts_is_no_digest_and_the_digest_holds(
    store: Store, s3: SeaweedServer, tmp_path: Path
) -> None:
    data = os.urandom(11 * 1024 * 1024)
    path = tmp_path / "big"
    path.write_bytes(data)
    client = connect(s3.endpoint, s3.access_key, s3.secret_key, "us-east-1")
    multipart.upload(client, BUCKET, "parts/big", path, len(data), smallest_bytes=5 * 1024 * 1024)
    assert "-" in store.head("parts/big").etag
    assert store.digest("parts/big") == digest_of(data)
    multipart.copy(client, BUCKET, "parts/big", "parts/copy", len(data), smallest_bytes=5 * 1024 * 1024)
    assert store.digest("parts/copy") == digest_of(data)


def test_parts_cover_every_byte_once_and_stay_below_the_limit() -> None:
    for size_bytes in (1, 5 * 1024**3 - 1, 5 * 1024**3, 5 * 1024**3 + 1, 5 * 1024**4):
        part_bytes = multipart.part_size(size_bytes, multipart.MIN_PART_BYTES)
        parts = list(multipart.ranges(size_bytes, part_bytes))
        assert len(parts) <= multipart.MAX_PARTS
        assert sum(length for _, _, length in parts) == size_bytes
        assert [number for number, _, _ in parts] == list(range(1, len(parts) + 1))


def test_a_large_file_goes_by_parts_and_a_failed_one_leaves_none_behind(
    proxied: Store, proxy: S3Proxy, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.objects.store.LARGE_BYTES", 5 * 1024 * 1024)
    path = tmp_path / "large"
    path.write_bytes(os.urandom(multipart.MIN_PART_BYTES + 1))
    digest = proxied.put("large/file", path)
    assert digest == digest_of(path) == store.digest("large/file")
    assert len(proxy.requests("PUT", "partNumber=")) == 2
    proxy.faults.extend(Faults.answer("PUT", "partNumber=2", 500, "InternalError") for _ in range(8))
    with pytest.raises(UnavailableError):
        proxied.put("large/failed", path)
    assert store.abort_uploads("large/", datetime(2100, 1, 1, tzinfo=UTC)) == 0
    with pytest.raises(MissingError):
        store.head("large/failed")


def test_tc12_a_file_that_shrinks_while_it_is_sent_is_told(store: Store, s3: SeaweedServer, tmp_path: Path) -> None:
    path = tmp_path / "shrunk"
    path.write_bytes(b"short")
    client = connect(s3.endpoint, s3.access_key, s3.secret_key, "us-east-1")
    with pytest.raises(ChangedError, match="shrank below"):
        multipart.upload(client, BUCKET, "large/shrunk", path, 6)
    assert store.abort_uploads("large/", datetime(2100, 1, 1, tzinfo=UTC)) == 0


def test_an_upload_that_never_finished_is_ended(store: Store, s3: SeaweedServer) -> None:
    client = connect(s3.endpoint, s3.access_key, s3.secret_key, "us-east-1")
    client.create_multipart_upload(Bucket=BUCKET, Key="stale/one")
    later = datetime(2100, 1, 1, tzinfo=UTC)
    assert store.abort_uploads("stale/", later - timedelta(days=36500)) == 0
    assert store.abort_uploads("stale/", later) == 1
    assert store.abort_uploads("stale/", later) == 0


def test_put_if_absent_writes_once_whoever_races(store: Store) -> None:
    answers: list[tuple[bytes, Created | Exists]] = []

    def write(content: bytes) -> None:
        answers.append((content, store.put_if_absent("race/marker", content)))

    threads = [threading.Thread(target=write, args=(f"writer {index}".encode(),)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [content for content, answer in answers if isinstance(answer, Created)]
    assert len(winners) == 1
    assert all(answer == Exists(winners[0]) for _, answer in answers if isinstance(answer, Exists))
    assert store.get("race/marker") == winners[0]


def test_tc25_a_conditional_write_whose_answer_was_lost_is_ones_own(proxied: Store, proxy: S3Proxy) -> None:
    proxy.faults.append(Faults.lose_answer("PUT", "own/marker"))
    assert proxied.put_if_absent("own/marker", b"writer 7") == Exists(b"writer 7")


def test_a_409_is_looked_at_and_tried_again(proxied: Store, proxy: S3Proxy) -> None:
    proxy.faults.append(Faults.answer("PUT", "busy/marker", 409, "ConditionalRequestConflict"))
    assert isinstance(proxied.put_if_absent("busy/marker", b"mine"), Created)


def test_tc9_a_listing_that_fails_midway_is_an_error(proxied: Store, proxy: S3Proxy, store: Store) -> None:
    for index in range(1001):
        store.put(f"pages/{index:05d}", b"", verify=False)
    assert len(proxied.list("pages/")) == 1001
    proxy.faults.extend(Faults.answer("GET", "continuation-token", 500, "InternalError") for _ in range(8))
    with pytest.raises(UnavailableError):
        proxied.list("pages/")


def test_a_cut_read_resumes_where_it_broke(proxied: Store, proxy: S3Proxy, store: Store, tmp_path: Path) -> None:
    data = os.urandom(6 * 1024 * 1024)
    store.put("cut/object", data)
    proxy.faults.append(Faults.cut_body("GET", "cut/object", after_bytes=2_500_000))
    assert proxied.get_to("cut/object", tmp_path / "back", digest_of(data).sha256) == digest_of(data)
    assert sum("Range" in request for request in proxy.requests("GET", "cut/object")) == 1


def test_tc7_a_read_never_mixes_two_versions(proxied: Store, proxy: S3Proxy, store: Store, tmp_path: Path) -> None:
    data = os.urandom(6 * 1024 * 1024)
    store.put("mixed/object", data)
    proxy.faults.append(Faults.cut_body("GET", "mixed/object", after_bytes=2_500_000))
    proxy.on_fault = lambda: store.put("mixed/object", data[::-1])
    with pytest.raises(ChangedError, match="changed while it was read"):
        proxied.get_to("mixed/object", tmp_path / "back")
    assert list(tmp_path.iterdir()) == []


def test_get_to_leaves_nothing_of_a_damaged_object(store: Store, tmp_path: Path) -> None:
    store.put("damaged/object", b"flipped")
    with pytest.raises(DamagedError, match="was promised"):
        store.get_to("damaged/object", tmp_path / "file", digest_of(b"right").sha256)
    assert list(tmp_path.iterdir()) == []


def test_missing_is_told_from_a_missing_bucket(store: Store, s3: SeaweedServer) -> None:
    with pytest.raises(MissingError):
        store.get("no/such")
    with pytest.raises(MissingError):
        store.head("no/such")
    elsewhere = Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key), "no-such-bucket"))
    with pytest.raises(RefusedError, match="no-such-bucket"):
        elsewhere.head("no/such")
    with pytest.raises(RefusedError, match="NoSuchBucket"):
        elsewhere.get("no/such")
    elsewhere.close()


def test_delete_is_repeatable(store: Store) -> None:
    store.put("gone/one", b"1")
    store.delete(["gone/one", "gone/never-there"])
    store.delete(["gone/one"])
    assert store.list("gone/") == []


def test_tc21_a_late_delete_spares_what_came_after(store: Store) -> None:
    store.put("late/marker", b"old")
    old = store.get_version("late/marker")
    store.put("late/marker", b"new")
    assert not store.delete_version("late/marker", old.etag)
    assert store.get("late/marker") == b"new"
    assert store.delete_version("late/marker", store.get_version("late/marker").etag)
    assert not store.delete_version("late/marker", old.etag)


def test_a_store_that_is_away_is_unavailable(s3: SeaweedServer) -> None:
    away = Store(config_of(s3, f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(UnavailableError, match="took no write"):
        away.wait_ready("probes/away", 0.5)
    away.close()


def test_tc15_a_store_that_changes_bytes_is_not_admitted(proxied: Store, proxy: S3Proxy) -> None:
    proxy.faults.append(Faults.flip_body("GET", "probes/flipped"))
    with pytest.raises(DamagedError, match="use another"):
        proxied.wait_ready("probes/flipped", 5)


def test_a_store_that_ignores_conditions_is_not_admitted(proxied: Store, proxy: S3Proxy) -> None:
    proxy.faults.append(Faults.answer("PUT", "probes/conditions", 200, "", header="If-None-Match"))
    with pytest.raises(RefusedError, match="ignores conditions"):
        proxied.wait_ready("probes/conditions", 5)


def test_uris_name_keys_and_refuse_other_buckets(store: Store) -> None:
    assert store.key(store.uri("a/b")) == "a/b"
    with pytest.raises(RefusedError, match="another-bucket"):
        store.key("s3://another-bucket/a")
    for text in ("https://x/y", "s3://bucket", "s3:///key", "s3://bucket/"):
        with pytest.raises(RefusedError):
            keys.split_uri(text)


def test_answers_of_the_proxy_reach_only_what_they_name(proxied: Store, proxy: S3Proxy) -> None:
    fault: Any = Faults.answer("PUT", "named/object", 503, "SlowDown")
    proxy.faults.append(fault)
    proxied.put("other/object", b"x")
    assert proxy.faults == [fault]
