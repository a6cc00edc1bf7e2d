"""The addresses of hosts: looked up once for a burst, and fairly between tenants.

Invariant: no host is looked up twice at once. A lookup under way counts for the tenant on whose
behalf it began until it is over, however long ago everybody gave up; and no tenant begins one
while it has a quarter of what is free, or more, unless it has none. So names that hang leave
room for the names of others, and most of it to the first who come.

A host that two tenants wait for is looked up at the turn of either. One that has not answered in
time is not waited for again before it has.
"""

import asyncio
import math
from collections import OrderedDict
from functools import partial
from typing import Final
from uuid import UUID

from aiohappyeyeballs import AddrInfoType

from wheelsched.dispatch.lookup import Addresses, Lookup

KEPT_S: Final = 5.0  # an answer; a name that moves is followed by then
FAILURE_KEPT_S: Final = 1.0  # no answer, or that there is no such name
MAX_KEPT: Final = 4_096  # hosts
PART: Final = 4  # a tenant may have one of so many lookups that are free


class _Host:
    """What is known of one host, or asked."""

    __slots__ = ("asked_s", "found", "name", "until_s")

    def __init__(self, name: str, found: asyncio.Future[Addresses]) -> None:
        self.name = name
        self.found = found
        self.asked_s: float | None = None  # when its lookup began
        self.until_s = math.inf  # when what was found is old


class _Tenant:
    __slots__ = ("asking", "waiting")

    def __init__(self) -> None:
        self.asking = 0  # lookups under way
        self.waiting: OrderedDict[_Host, int] = OrderedDict()  # and how many wait for each


class Names:
    """What a lookup answered, for a few seconds. Who asks meanwhile waits along."""

    def __init__(self, lookup: Lookup, *, most: int, timeout_ms: int) -> None:
        self._lookup = lookup
        self._most = most  # lookups at once
        self._timeout_s = timeout_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._hosts: OrderedDict[str, _Host] = OrderedDict()  # the oldest first
        self._tenants: OrderedDict[UUID, _Tenant] = OrderedDict()  # whose turn it is first
        self._asking: set[asyncio.Task[Addresses]] = set()

    async def resolve(self, tenant_id: UUID, host: str, port: int) -> Addresses:
        """The addresses of a host, or an `OSError`, at the latest when the timeout has passed."""
        now_s = self._loop.time()
        known = self._hosts.get(host)
        if known is None or known.until_s <= now_s:
            known = self._begin_anew(host, now_s)
        if not known.found.done() and (known.asked_s or now_s) + self._timeout_s <= now_s:
            raise _unanswered(host)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await self._wait(tenant_id, known)
        except TimeoutError as error:
            raise _unanswered(host) from error
        return [_with_port(address, port) for address in found]

    async def close(self) -> None:
        for asking in self._asking:
            asking.cancel()
        for known in self._hosts.values():
            known.found.cancel()
        self._hosts.clear()
        await self._lookup.close()

    async def _wait(self, tenant_id: UUID, host: _Host) -> Addresses:
        if host.asked_s is not None:
            return await asyncio.shield(host.found)
        tenant = self._tenants.setdefault(tenant_id, _Tenant())
        tenant.waiting[host] = tenant.waiting.get(host, 0) + 1
        self._ask_next()
        try:
            return await asyncio.shield(host.found)
        finally:
            if host in tenant.waiting:  # it was not its turn
                tenant.waiting[host] -= 1
                if not tenant.waiting[host]:
                    del tenant.waiting[host]
            self._forget_if_idle(tenant_id, tenant)

    def _ask_next(self) -> None:
        """Begins what may begin, one host of each tenant in turn."""
        while (tenant_id := self._next_tenant()) is not None:
            tenant = self._tenants[tenant_id]
            self._tenants.move_to_end(tenant_id)
            host, _ = tenant.waiting.popitem(last=False)
            if host.asked_s is None:
                self._ask(tenant_id, tenant, host)
            self._forget_if_idle(tenant_id, tenant)

    def _next_tenant(self) -> UUID | None:
        free = self._most - len(self._asking)
        if free <= 0:
            return None
        part = max(free // PART, 1)
        for tenant_id, tenant in self._tenants.items():
            if tenant.waiting and tenant.asking < part:
                return tenant_id
        return None

    def _ask(self, tenant_id: UUID, tenant: _Tenant, host: _Host) -> None:
        host.asked_s = self._loop.time()
        tenant.asking += 1
        asking = self._loop.create_task(self._lookup.resolve(host.name))
        self._asking.add(asking)
        asking.add_done_callback(partial(self._answered, tenant_id, host))

    def _answered(self, tenant_id: UUID, host: _Host, asked: asyncio.Task[Addresses]) -> None:
        self._asking.discard(asked)
        tenant = self._tenants[tenant_id]
        tenant.asking -= 1
        self._forget_if_idle(tenant_id, tenant)
        if asked.cancelled():  # at the close
            return
        error = asked.exception()
        if error is None:
            host.until_s = self._loop.time() + KEPT_S
            host.found.set_result(asked.result())
        else:
            host.until_s = self._loop.time() + FAILURE_KEPT_S
            host.found.set_exception(error)
            host.found.exception()  # seen, though nobody may wait for it any more
        self._ask_next()

    def _forget_if_idle(self, tenant_id: UUID, tenant: _Tenant) -> None:
        if not tenant.asking and not tenant.waiting and self._tenants.get(tenant_id) is tenant:
            del self._tenants[tenant_id]

    def _begin_anew(self, name: str, now_s: float) -> _Host:
        while self._hosts:
            oldest = next(iter(self._hosts.values()))
            if oldest.until_s > now_s and len(self._hosts) < MAX_KEPT:
                break
            self._hosts.popitem(last=False)
        host = self._hosts[name] = _Host(name, self._loop.create_future())
        self._hosts.move_to_end(name)
        return host


def _unanswered(host: str) -> OSError:
    # Not a `TimeoutError`, which is for the deadline of who asked.
    return OSError(0, f"the name server did not answer for {host}")


def _with_port(address: AddrInfoType, port: int) -> AddrInfoType:
    family, kind, protocol, name, (host, _, *rest) = address
    return (family, kind, protocol, name, (host, port, *rest))
