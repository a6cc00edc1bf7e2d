"""Looking names up by the system's resolver, on threads of its own.

Invariant: a name server that does not answer blocks neither the loop, nor the threads that anything
else runs on, nor the end of the process. How many are asked at once, and on whose behalf, is
decided by who asks: see `names`. What names resolve to is not judged here: see the egress guard.
"""

import asyncio
import socket
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol, TypeAlias

from aiohappyeyeballs import AddrInfoType

MAX_ADDRESSES: Final = 8  # each may be tried, and each try takes its time

Addresses: TypeAlias = list[AddrInfoType]
_Found: TypeAlias = asyncio.Future[Addresses]


class Lookup(Protocol):
    """Finds the addresses of a host, with any port, or raises an `OSError`."""

    async def resolve(self, host: str) -> Addresses: ...

    async def close(self) -> None: ...


class ThreadedLookup:
    """The system's resolver, with as many threads as it was ever asked for at once.

    They are daemons: nothing ends a question to the system, and no exit waits for an answer.
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
                self._loop.call_soon_threadsafe(self._tell, found, answer)
            except RuntimeError:  # the loop was closed meanwhile: nobody wants to know
                return

    def _tell(self, found: _Found, answer: Addresses | Exception) -> None:
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
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where it was asked for
        return error
    return list(found[:MAX_ADDRESSES])
