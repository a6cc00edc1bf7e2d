"""The line between a shard and its store, which can be cut."""

from collections.abc import Awaitable, Callable
from typing import Any

from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Hint, HintSource
from wheelsched.testing import MemoryStore


class Part:
    """One part of a store, at the other end of the line."""

    def __init__(self, line: "Line", part: object) -> None:
        self._line = line
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)

        async def call(*arguments: object, **named: object) -> object:
            self._line.check()
            return await method(*arguments, **named)

        return call


class Line:
    """`Stores`, until it is cut. A deaf line carries everything but hints."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_cut = False
        self.is_deaf = False
        self.leases: Any = Part(self, store.leases)
        self.timers: Any = Part(self, store.timers)
        self.runs: Any = Part(self, store.runs)
        self.plans: Any = Part(self, store.plans)
        self.jobs: Any = Part(self, store.jobs)
        self.history: Any = Part(self, store.history)
        self.tenants: Any = Part(self, store.tenants)
        self.idempotency: Any = Part(self, store.idempotency)

    def check(self) -> None:
        if self.is_cut:
            raise StoreUnavailable

    async def listen(self, on_hint: Callable[[Hint], None]) -> HintSource:
        def hear(hint: Hint) -> None:
            if not (self.is_deaf or self.is_cut):
                on_hint(hint)

        if self.is_deaf or self.is_cut:
            raise StoreUnavailable
        return Ear(self, await self._store.listen(hear))


class Ear:
    """`HintSource`, until the line is cut or deaf."""

    def __init__(self, line: Line, source: HintSource) -> None:
        self._line = line
        self._source = source

    async def confirm(self) -> None:
        if self._line.is_deaf or self._line.is_cut:
            raise StoreUnavailable
        await self._source.confirm()

    async def close(self) -> None:
        await self._source.close()
