"""Looking names up, on threads of its own, and once for a burst.

Invariant: a name server that does not answer costs its own targets a connection, and others a
thread for as long as the system's resolver waits; it never blocks the loop, nor the threads that
anything else runs on. What names resolve to is not judged here: see the egress guard.
"""

import asyncio
import socket
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from aiohappyeyeballs import AddrInfoType

MAX_ADDRESSES: Final = 8  # each may be tried, and each try takes its time
KEPT_S: Final = 5.0  # an answer; a name that moves is followed by then
MAX_KEPT: Final = 4_096  # answers

Addresses: TypeAlias = list[AddrInfoType]


class Lookup(Protocol):
    """Finds the addresses of a host, or raises an `OSError`."""

    async def resolve(self, host: str, port: int) -> Addresses: ...

    async def close(self) -> None: ...


class ThreadedLookup:
    """The system's resolver."""

    def __init__(self, *, threads: int, timeout_ms: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="lookup")
        self._timeout_ms = timeout_ms

    async def resolve(self, host: str, port: int) -> Addresses:
        ask = partial(socket.getaddrinfo, host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except TimeoutError as error:
            raise OSError(0, f"the name server did not answer for {host}") from error
        return list(found[:MAX_ADDRESSES])

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Kept(NamedTuple):
    until_s: float
    found: asyncio.Task[Addresses]

    def is_good(self, now_s: float) -> bool:
        if self.until_s <= now_s:
            return False
        return not self.found.done() or _is_answered(self.found)


class KeptLookup:
    """What another lookup answered, for a few seconds. Who asks meanwhile waits along."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._loop = asyncio.get_running_loop()
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()  # the oldest first

    async def resolve(self, host: str, port: int) -> Addresses:
        now_s = self._loop.time()
        kept = self._kept.get((host, port))
        if kept is None or not kept.is_good(now_s):
            self._drop_old(now_s)
            found = self._loop.create_task(self._lookup.resolve(host, port))
            found.add_done_callback(_is_answered)
            kept = self._kept[host, port] = _Kept(now_s + KEPT_S, found)
            self._kept.move_to_end((host, port))
        return await asyncio.shield(kept.found)

    async def close(self) -> None:
        for kept in self._kept.values():
            kept.found.cancel()
        self._kept.clear()
        await self._lookup.close()

    def _drop_old(self, now_s: float) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if oldest.until_s > now_s and len(self._kept) < MAX_KEPT:
                return
            self._kept.popitem(last=False)


def _is_answered(found: asyncio.Task[Addresses]) -> bool:
    """Whether a lookup that is over found something. To ask is to have seen its error."""
    return not found.cancelled() and found.exception() is None
