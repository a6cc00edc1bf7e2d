"""Resolves and caches the addresses of hosts, fairly between tenants.

Invariant: no host is looked up twice at the same time. A running lookup counts for the tenant that
started it until it ends, even if no request waits for it any longer. A tenant starts a new lookup
only if it has none, or fewer than a quarter of the free capacity. So lookups that hang leave room
for other tenants.

If two tenants wait for a host, it is looked up at the turn of either. After a lookup has timed out,
new requests for the host fail at once until it ends.
"""

import asyncio
import math
from collections import OrderedDict
from functools import partial
from typing import Final
from uuid import UUID

from aiohappyeyeballs import AddrInfoType

from wheelsched.delivery.http.lookup import Addresses, Lookup

KEPT_S: Final = 5.0  # how long a result is cached
FAILURE_KEPT_S: Final = 1.0  # how long a failure is cached
MAX_KEPT: Final = 4_096  # hosts
SHARE: Final = 4  # a tenant may use one in this many free lookups


class _Host:
    """The result of one lookup, or the lookup in progress."""

    __slots__ = ("asked_s", "found", "name", "until_s")

    def __init__(self, name: str, found: asyncio.Future[Addresses]) -> None:
        self.name = name
        self.found = found
        self.asked_s: float | None = None  # when its lookup began
        self.until_s = math.inf  # when the result expires


class _Tenant:
    __slots__ = ("asking", "waiting")

    def __init__(self) -> None:
        self.asking = 0  # running lookups
        self.waiting: OrderedDict[_Host, int] = OrderedDict()  # host: number of waiting requests


class DnsCache:
    """Caches the results of lookups for a few seconds. Concurrent requests share a lookup."""

    def __init__(self, lookup: Lookup, *, most: int, timeout_ms: int) -> None:
        self._lookup = lookup
        self._most = most  # lookups at once
        self._timeout_s = timeout_ms / 1_000
        self._loop = asyncio.get_running_loop()
        self._hosts: OrderedDict[str, _Host] = OrderedDict()  # the oldest first
        self._tenants: OrderedDict[UUID, _Tenant] = OrderedDict()  # whose turn it is first
        self._asking: set[asyncio.Task[Addresses]] = set()

    async def resolve(self, tenant_id: UUID, host: str, port: int) -> Addresses:
        """The addresses of a host. Raises `OSError`, at the latest after the timeout."""
        now_s = self._loop.time()
        known = self._hosts.get(host)
        if known is None or known.until_s <= now_s:
            known = self._start_lookup(host, now_s)
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
            if host in tenant.waiting:  # the lookup has not started
                tenant.waiting[host] -= 1
                if not tenant.waiting[host]:
                    del tenant.waiting[host]
            self._drop_if_idle(tenant_id, tenant)

    def _ask_next(self) -> None:
        """Start as many lookups as allowed, one host of each tenant in turn."""
        while (tenant_id := self._next_tenant()) is not None:
            tenant = self._tenants[tenant_id]
            self._tenants.move_to_end(tenant_id)
            host, _ = tenant.waiting.popitem(last=False)
            if host.asked_s is None:
                self._ask(tenant_id, tenant, host)
            self._drop_if_idle(tenant_id, tenant)

    def _next_tenant(self) -> UUID | None:
        free = self._most - len(self._asking)
        if free <= 0:
            return None
        share = max(free // SHARE, 1)
        for tenant_id, tenant in self._tenants.items():
            if tenant.waiting and tenant.asking < share:
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
        self._drop_if_idle(tenant_id, tenant)
        if asked.cancelled():  # at the close
            return
        error = asked.exception()
        if error is None:
            host.until_s = self._loop.time() + KEPT_S
            host.found.set_result(asked.result())
        else:
            host.until_s = self._loop.time() + FAILURE_KEPT_S
            host.found.set_exception(error)
            host.found.exception()  # mark it as retrieved: perhaps no request waits
        self._ask_next()

    def _drop_if_idle(self, tenant_id: UUID, tenant: _Tenant) -> None:
        if not tenant.asking and not tenant.waiting and self._tenants.get(tenant_id) is tenant:
            del self._tenants[tenant_id]

    def _start_lookup(self, name: str, now_s: float) -> _Host:
        while self._hosts:
            oldest = next(iter(self._hosts.values()))
            if oldest.until_s > now_s and len(self._hosts) < MAX_KEPT:
                break
            self._hosts.popitem(last=False)
        host = self._hosts[name] = _Host(name, self._loop.create_future())
        self._hosts.move_to_end(name)
        return host


def _unanswered(host: str) -> OSError:
    # `TimeoutError` is reserved for the deadline of the request.
    return OSError(0, f"the DNS lookup of {host} timed out")


def _with_port(address: AddrInfoType, port: int) -> AddrInfoType:
    family, kind, protocol, name, (host, _, *rest) = address
    return (family, kind, protocol, name, (host, port, *rest))
