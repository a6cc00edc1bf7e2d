"""Resolves names with the system's resolver, in its own threads.

Invariant: a slow name server blocks neither the loop, nor other threads, nor the exit of the
process. `dns_cache` limits the concurrent lookups, and `egress` checks the resulting addresses.
"""

import asyncio
import socket
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol, TypeAlias

from aiohappyeyeballs import AddrInfoType

MAX_ADDRESSES: Final = 8  # because each may be tried, one after the other

Addresses: TypeAlias = list[AddrInfoType]
_Found: TypeAlias = asyncio.Future[Addresses]


class Lookup(Protocol):
    """Resolves the addresses of a host, with any port. Raises `OSError`."""

    async def resolve(self, host: str) -> Addresses: ...

    async def close(self) -> None: ...


class ThreadedLookup:
    """The system's resolver, with a thread for each concurrent lookup.

    The threads are daemons, because a lookup cannot be cancelled and must not delay the exit.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[tuple[str, _Found] | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0

    async def resolve(self, host: str) -> Addresses:
        found: _Found = self._loop.create_future()
        self._under_way += 1
        if self._under_way > self._threads:
            self._threads += 1
            Thread(target=self._work, name=f"lookup-{self._threads}", daemon=True).start()
        self._asked.put((host, found))
        return await found

    async def close(self) -> None:
        for _ in range(self._threads):
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            host, found = asked
            answer = _ask_system(host)
            try:
                self._loop.call_soon_threadsafe(self._resolve, found, answer)
            except RuntimeError:  # the loop was closed in the meantime
                return

    def _resolve(self, found: _Found, answer: Addresses | Exception) -> None:
        self._under_way -= 1
        if found.done():
            return
        if isinstance(answer, Exception):
            found.set_exception(answer)
        else:
            found.set_result(answer)


def _ask_system(host: str) -> Addresses | Exception:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - raised where the lookup is awaited
        return error
    return list(found[:MAX_ADDRESSES])
