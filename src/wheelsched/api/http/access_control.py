"""Decides whether a request may be served, in any protocol.

Invariant: the rate of a tenant is counted before its scopes are checked, so that requests that are
refused count, too.
"""

from collections.abc import Sequence

from msgspec import Struct

from wheelsched.api.http.admission import Admission
from wheelsched.api.http.authentication import Access, Authentication, Requester, require
from wheelsched.api.http.rate_limit import RateLimit
from wheelsched.wire.tenant import Scope


class AccessControl:
    """Authentication, rate limit and scopes."""

    def __init__(self, authentication: Authentication, rate_limit: RateLimit) -> None:
        self._authentication = authentication
        self._rate_limit = rate_limit

    async def admit(self, request: Requester, scope: Scope, others: Sequence[Scope] = ()) -> Access:
        """Counts a request, and returns its access or raises a `RequestRefused`."""
        access = await self._authentication.identify(request)
        self._rate_limit.spend(access.caller.tenant_id, access.requests_per_second)
        require(scope, access.scopes, others)
        return access

    async def check(self, request: Requester, scope: Scope) -> None:
        """Raises a `RequestRefused` if a request that was admitted would not be any more."""
        access = await self._authentication.identify(request)
        require(scope, access.scopes)


class Gate(Struct, frozen=True):
    """What a request passes before it is read."""

    access: AccessControl
    admission: Admission
