"""`AsyncStore`: the same calls awaited, a bound on how many run, and no process that cannot end."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from pydantic import SecretStr

from libs.objects import AsyncStore, Created, Exists, MissingError, Store, StoreConfig
from libs.objects.aio import THREADS
from tests.objects.proxy import S3Proxy
from tests.servers import SeaweedServer
from tests.waiting import until


@pytest_asyncio.fixture
async def store(s3: SeaweedServer) -> AsyncGenerator[AsyncStore, None]:
    made = AsyncStore(Store(StoreConfig(s3.endpoint, s3.access_key, SecretStr(s3.secret_key), "aio-test")))
    await made.wait_ready("probes/aio", 60)
    yield made
    await made.close()


async def test_calls_answer_and_raise_as_the_store_does(store: AsyncStore) -> None:
    assert await store.put_if_absent("aio/marker", b"mine") == Created()
    assert await store.put_if_absent("aio/marker", b"theirs") == Exists(b"mine")
    assert await store.get("aio/marker") == b"mine"
    assert (await store.get_version("aio/marker")).content == b"mine"
    assert store.key(store.uri("aio/marker")) == "aio/marker"
    with pytest.raises(MissingError):
        await store.get("aio/none")
    await store.delete([item.key for item in await store.list("aio/")])
    assert await store.list("aio/") == []


async def test_no_more_than_the_bound_run_at_once_and_a_caller_may_give_up(
    s3: SeaweedServer, store: AsyncStore
) -> None:
    with S3Proxy(s3.ports["s3"]) as proxy:
        config = StoreConfig(proxy.endpoint, s3.access_key, SecretStr(s3.secret_key), store.bucket)
        proxied = AsyncStore(Store(config))
        gate = proxy.gate("PUT", "many/", "before")
        calls = [asyncio.create_task(proxied.put(f"many/{index}", b"x")) for index in range(3 * THREADS)]
        await until(lambda: len(proxy.requests("PUT", "many/")) == THREADS, 20)
        assert sum(thread.name == "objects" for thread in threading.enumerate()) <= THREADS
        calls[0].cancel()
        gate.open()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert not any(isinstance(one, BaseException) for one in done[1:])
        await proxied.close()


def test_a_store_that_hangs_does_not_keep_a_process_from_ending(s3: SeaweedServer) -> None:
    with S3Proxy(s3.ports["s3"]) as proxy:
        gate = proxy.gate("GET", "hangs", "before")
        script = f"""
            import asyncio
            from pydantic import SecretStr
            from libs.objects import AsyncStore, Store, StoreConfig

            async def main():
                store = AsyncStore(Store(StoreConfig({proxy.endpoint!r}, "a", SecretStr("b"), "aio-test")))
                try:
                    async with asyncio.timeout(1):
                        await store.get("hangs")
                except TimeoutError:
                    await store.close()
                    print("given up")

            asyncio.run(main())
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        run = subprocess.run(command, check=True, capture_output=True, timeout=20)
        assert run.stdout == b"given up\n"
        assert gate.reached.is_set()
