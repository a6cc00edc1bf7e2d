"""Authentication: the tenant and the scopes of a request come from its token alone.

Invariant: a revoked token is rejected everywhere within `token_cache_ms`. Without a token only
local programs are accepted, and only if the configuration allows it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from aiohttp import hdrs
from msgspec import Struct

from wheelsched.config import ApiConfig
from wheelsched.errors import (
    OriginForeign,
    ScopeMissing,
    TenantNotFound,
    TokenMissing,
    TokenUnknown,
)
from wheelsched.ports import Caller, Clock, TenantStore
from wheelsched.wire.tenant import Scope

TOKEN_PREFIX: Final = "wst_"  # noqa: S105 - a public prefix, so that secret scanners find tokens
TOKEN_BYTES: Final = 32
PROXY_HEADERS: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")
FETCH_SITE: Final = "Sec-Fetch-Site"  # set by browsers; web pages cannot change it
OWN_SITES: Final = ("same-origin", "none")
LOOPBACK_ACTOR: Final = "loopback"
ALL_SCOPES: Final = frozenset[str](Scope)
_MAX_TOKEN: Final = 256
_MAX_CACHED: Final = 10_000


class Requester(Protocol):
    """What a request says about its origin, in any protocol. The headers ignore case."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def host(self) -> str: ...

    @property
    def remote(self) -> str | None: ...


class Access(Struct, frozen=True):
    """The identity and the permissions of a request."""

    caller: Caller
    scopes: frozenset[str]
    requests_per_second: int


class _CachedAccess(NamedTuple):
    until_ns: int
    access: Access | None


def require(scope: Scope, scopes: frozenset[str], others: Sequence[Scope] = ()) -> None:
    """Raises `ScopeMissing` if the token has neither the scope nor one of the others."""
    if scope not in scopes and scopes.isdisjoint(others):
        named = " or ".join(f"'{each}'" for each in (scope, *others))
        raise ScopeMissing(f"this operation requires a token with the scope {named}")


def digest_of(token: str) -> bytes:
    """The stored digest of a token. Tokens have 256 random bits, so a fast hash is enough."""
    return hashlib.sha256(token.encode()).digest()


class Authentication:
    """Looks up tokens in the store and caches them briefly."""

    def __init__(self, tenants: TenantStore, clock: Clock, config: ApiConfig) -> None:
        self._tenants = tenants
        self._clock = clock
        self._config = config
        self._cache: OrderedDict[bytes, _CachedAccess] = OrderedDict()

    async def identify(self, request: Requester) -> Access:
        """The access of a request, or the reason why it has none."""
        header = request.headers.get(hdrs.AUTHORIZATION)
        if header is None:
            return await self._identify_loopback(request)
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise TokenMissing
        try:
            digest = digest_of(token.strip())
        except UnicodeEncodeError:
            raise TokenUnknown from None
        access = await self._look_up(digest)
        if access is None:
            raise TokenUnknown
        return access

    async def _identify_loopback(self, request: Requester) -> Access:
        if self._config.auth == "required" or self._config.loopback_tenant_id is None:
            raise TokenMissing
        check_loopback(request)
        caller = Caller(self._config.loopback_tenant_id, LOOPBACK_ACTOR)
        return Access(caller, ALL_SCOPES, self._config.loopback_requests_per_second)

    async def _look_up(self, digest: bytes) -> Access | None:
        now_ns = self._clock.now_ns()
        cached = self._cache.get(digest)
        if cached is not None and now_ns < cached.until_ns:
            return cached.access
        access = await self._read(digest)
        self._cache[digest] = _CachedAccess(
            now_ns + self._config.token_cache_ms * 1_000_000, access
        )
        self._cache.move_to_end(digest)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)
        return access

    async def _read(self, digest: bytes) -> Access | None:
        token = await self._tenants.find_token(digest)
        if token is None or token.revoked_at_us is not None:
            return None
        tenants = await self._tenants.read([token.tenant_id])
        if not tenants:
            raise TenantNotFound
        return Access(
            Caller(token.tenant_id, f"token:{token.name}"),
            frozenset(token.scopes),
            tenants[0].requests_per_second,
        )


def check_loopback(request: Requester) -> None:
    """Rejects requests from other machines, proxies and web pages.

    A page may resolve its own host name to this machine or submit a form to it; then `Host` or
    `Origin` differ from what a local program sends. A proxied request does not come from this
    machine either.
    """
    if any(name in request.headers for name in PROXY_HEADERS):
        raise OriginForeign
    origin = request.headers.get(hdrs.ORIGIN)
    try:
        is_here = _names_loopback(request.host)
        is_foreign = origin is not None and urlsplit(origin).netloc != request.host
    except ValueError:  # an unbalanced bracket
        raise OriginForeign from None
    is_foreign |= request.headers.get(FETCH_SITE, "none") not in OWN_SITES
    if is_foreign or not is_here or not _is_loopback(request.remote):
        raise OriginForeign


@lru_cache(maxsize=256)
def _names_loopback(authority: str) -> bool:
    host = urlsplit(f"//{authority}").hostname
    return host == "localhost" or _is_loopback(host)


@lru_cache(maxsize=256)
def _is_loopback(address: str | None) -> bool:
    try:
        return address is not None and ip_address(address).is_loopback
    except ValueError:
        return False
