"""Threads and forks, which only the sync client has to deal with."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.unit.client.server import Reply, Server, reply

from wheelsched.client import ClientConfig, SyncClient
from wheelsched.errors import ApiUnavailable, InvalidApiUrl

SHARDS = reply({"items": [], "free_partitions": [1]})


def threads_of_clients() -> int:
    return sum(each.name == "wheelsched-client" for each in threading.enumerate())


async def test_many_threads_may_call_at_once(server: Server) -> None:
    server.replies = [SHARDS]

    def ask_all() -> list[object]:
        with SyncClient(server.url) as client, ThreadPoolExecutor(8) as threads:
            return list(threads.map(lambda _: client.list_shards(), range(40)))

    assert len(await asyncio.to_thread(ask_all)) == 40
    assert threads_of_clients() == 0


async def test_an_unused_client_has_no_thread(server: Server) -> None:
    client = SyncClient(server.url)
    assert threads_of_clients() == 0
    client.close()


async def test_a_closed_client_can_be_used_again(server: Server) -> None:
    server.replies = [SHARDS]

    def ask_twice() -> None:
        client = SyncClient(server.url)
        client.list_shards()
        client.close()
        client.list_shards()
        client.close()

    await asyncio.to_thread(ask_twice)
    assert len(server.seen) == 2


async def test_errors_are_raised_unchanged(server: Server) -> None:
    server.replies = [Reply(503)]

    def ask() -> None:
        with SyncClient(server.url, config=ClientConfig(max_attempts=1)) as client:
            client.list_shards()

    with pytest.raises(ApiUnavailable):
        await asyncio.to_thread(ask)


def test_an_invalid_url_is_rejected_at_once() -> None:
    with pytest.raises(InvalidApiUrl):
        SyncClient("nowhere")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_starts_its_own_thread(server: Server) -> None:
    """As in pre-forking servers that call the API before they fork."""
    server.replies = [SHARDS]

    def ask_in_a_child() -> int:
        client = SyncClient(server.url)
        client.list_shards()
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if client.list_shards().free_partitions == [1] else 1)
            finally:
                os._exit(2)
        _, status = os.waitpid(child, 0)
        client.close()
        return os.waitstatus_to_exitcode(status)

    assert await asyncio.to_thread(ask_in_a_child) == 0
    assert len(server.seen) == 2
