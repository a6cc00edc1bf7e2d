"""The connection between a shard and its store, which can be cut."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Hint, HintSource
from wheelsched.testing import MemoryStore
from wheelsched.testing.server import MemoryConnection


class Part:
    """One part of a store, behind the connection."""

    def __init__(self, link: "StoreLink", part: object) -> None:
        self._link = link
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._part, name)
        if name in ("is_connected", "wait_disconnected"):
            return method  # of the process itself

        async def call(*arguments: object, **named: object) -> object:
            self._link.check()
            return await method(*arguments, **named)

        return call


class StoreLink:
    """`Stores`, until it is cut. A deaf connection carries everything but hints.

    Each process has its own, which is also cut when the one of all is.
    """

    def __init__(self, store: MemoryStore, of_all: "StoreLink | None" = None) -> None:
        self._store = store
        self._of_all = of_all
        self.is_cut = False
        self.is_deaf = False
        parts: Any = store if of_all is None else of_all
        self.leases: Any = Part(self, store.leases)
        self.timers: Any = Part(self, parts.timers)
        self.runs: Any = Part(self, parts.runs)
        self.plans: Any = Part(self, parts.plans)
        self.jobs: Any = Part(self, parts.jobs)
        self.history: Any = Part(self, parts.history)
        self.tenants: Any = Part(self, parts.tenants)
        self.idempotency: Any = Part(self, parts.idempotency)
        self.links: Any = Part(self, parts.links)

    def for_process(self) -> "StoreLink":
        return StoreLink(self._store.for_process(), self)

    @property
    def connection(self) -> MemoryConnection:
        """The lease connection of the process."""
        connection = self._store.leases.connection
        assert connection is not None
        return connection

    def cut(self) -> None:
        """Cuts the connections of this process, and keeps it from connecting again."""
        self.is_cut = True
        self.connection.close()

    def check(self) -> None:
        if self.is_cut:
            raise StoreUnavailable
        if self._of_all is not None:
            self._of_all.check()

    def check_hints(self) -> None:
        self.check()
        if self.is_deaf:
            raise StoreUnavailable
        if self._of_all is not None:
            self._of_all.check_hints()

    async def listen(self, on_hint: Callable[[Hint], None]) -> HintSource:
        def hear(hint: Hint) -> None:
            with suppress(StoreUnavailable):
                self.check_hints()
                on_hint(hint)

        self.check_hints()
        return Ear(self, await self._store.listen(hear))


class Ear:
    """`HintSource`, until the connection is cut or deaf."""

    def __init__(self, link: StoreLink, source: HintSource) -> None:
        self._link = link
        self._source = source

    async def confirm(self) -> None:
        self._link.check_hints()
        await self._source.confirm()

    async def close(self) -> None:
        await self._source.close()
