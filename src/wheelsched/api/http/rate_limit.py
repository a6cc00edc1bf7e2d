"""Per-tenant request rate limit, counted in this process.

Invariant: in any interval a tenant gets at most its rate times the interval, plus a burst of one
second's worth. The state is one number per tenant.
"""

from typing import Final
from uuid import UUID

from wheelsched.errors import RateExceeded
from wheelsched.ports import Clock

SECOND_NS: Final = 1_000_000_000
_MAX_TENANTS: Final = 10_000


class RateLimit:
    """For each tenant, when its requests so far are paid off at its rate (GCRA)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._settled_ns: dict[UUID, int] = {}
        self._max_tenants = _MAX_TENANTS

    def spend(self, tenant_id: UUID, requests_per_second: int) -> None:
        """Counts one request, or raises `RateExceeded`."""
        now_ns = self._clock.now_ns()
        settled_ns = max(self._settled_ns.get(tenant_id, 0), now_ns)
        settled_ns += SECOND_NS // requests_per_second
        ahead_ns = settled_ns - now_ns - SECOND_NS
        if ahead_ns > 0:
            raise RateExceeded(
                f"the tenant exceeded its limit of {requests_per_second:,} requests per second",
                retry_after_s=-(-ahead_ns // SECOND_NS),
            )
        self._settled_ns[tenant_id] = settled_ns
        if len(self._settled_ns) > self._max_tenants:
            self._forget(now_ns)

    def _forget(self, now_ns: int) -> None:
        """Drops tenants without recent requests."""
        self._settled_ns = {
            tenant_id: settled_ns
            for tenant_id, settled_ns in self._settled_ns.items()
            if settled_ns > now_ns
        }
        # Doubled, so that this does not run on every request.
        self._max_tenants = max(_MAX_TENANTS, 2 * len(self._settled_ns))
