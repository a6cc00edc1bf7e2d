"""Rates: how often a tenant may ask, counted in this process.

Invariant: in any stretch of time a tenant is answered at most its rate times that stretch, and one
second's worth more at once. What is remembered of a tenant is one number.
"""

from typing import Final
from uuid import UUID

from wheelsched.errors import RateExceeded
from wheelsched.ports import Clock

SECOND_NS: Final = 1_000_000_000
_MANY: Final = 10_000


class Rates:
    """For each tenant, the instant at which what it has asked so far was all its due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._settled_ns: dict[UUID, int] = {}
        self._many = _MANY

    def spend(self, tenant_id: UUID, requests_per_second: int) -> None:
        """Count one request, or raise `RateExceeded`."""
        now_ns = self._clock.now_ns()
        settled_ns = max(self._settled_ns.get(tenant_id, 0), now_ns)
        settled_ns += SECOND_NS // requests_per_second
        ahead_ns = settled_ns - now_ns - SECOND_NS
        if ahead_ns > 0:
            raise RateExceeded(
                f"the tenant may ask {requests_per_second:,} times a second",
                retry_after_s=-(-ahead_ns // SECOND_NS),
            )
        self._settled_ns[tenant_id] = settled_ns
        if len(self._settled_ns) > self._many:
            self._forget(now_ns)

    def _forget(self, now_ns: int) -> None:
        """Who has asked for nothing ahead is as good as unknown."""
        self._settled_ns = {
            tenant_id: settled_ns
            for tenant_id, settled_ns in self._settled_ns.items()
            if settled_ns > now_ns
        }
        self._many = max(_MANY, 2 * len(self._settled_ns))  # not looked through at each request
