"""Tenants and tokens: what an operator asks for.

Invariant: a secret leaves this process once, in the answer that made it; the store has the digest
of a token and no more.
"""

from base64 import b64encode, urlsafe_b64encode
from secrets import token_bytes
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from wheelsched.api.authentication import TOKEN_BYTES, TOKEN_PREFIX, digest_of
from wheelsched.api.cursors import Cursors
from wheelsched.api.identities import Identities
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.pages import PageQuery, cut
from wheelsched.api.surroundings import Surroundings
from wheelsched.core.labels import check_name
from wheelsched.errors import TenantNotFound, TokenNotFound
from wheelsched.ports import Tenant, TenantStore, Token
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.tenant import (
    Scope,
    TenantAnswer,
    TenantPage,
    TenantRequest,
    TokenAnswer,
    TokenPage,
    TokenRequest,
)

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
SECRET_BYTES: Final = 32


class TokensQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tokens; the caller's own by default."""

    tenant_id: UUID | None = None


class Tenants:
    """What is asked by operators."""

    def __init__(self, tenants: TenantStore, surroundings: Surroundings) -> None:
        self._tenants = tenants
        self._surroundings = surroundings

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/tenants",
                summary="Create a tenant",
                scope=Scope.ADMIN,
                handle=self.create,
                body=TenantRequest,
                answer=TenantAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tenants",
                summary="List tenants by name",
                scope=Scope.ADMIN,
                handle=self.list_tenants,
                query=PageQuery,
                answer=TenantPage,
            ),
            Operation(
                method="POST",
                path="/tokens",
                summary="Make a token",
                scope=Scope.ADMIN,
                handle=self.add_token,
                body=TokenRequest,
                answer=TokenAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tokens",
                summary="List the tokens of a tenant, oldest first",
                scope=Scope.ADMIN,
                handle=self.list_tokens,
                query=TokensQuery,
                answer=TokenPage,
            ),
            Operation(
                method="DELETE",
                path="/tokens/{token_id}",
                summary="Revoke a token",
                scope=Scope.ADMIN,
                handle=self.revoke_token,
                answer=TokenAnswer,
            ),
        )

    async def create(self, call: Call[NoQuery, TenantRequest]) -> Answer:
        written = call.body
        tenant = Tenant(
            tenant_id=Identities(call.now_us, call.seed, self._surroundings.random).next(),
            name=check_name(written.name),
            weight=written.weight,
            job_quota=written.job_quota,
            requests_per_second=written.requests_per_second,
            secrets=(SECRET_PREFIX + b64encode(token_bytes(SECRET_BYTES)).decode(),),
            created_at_us=call.now_us,
        )
        await self._tenants.create(call.caller.actor, tenant)
        shown = tenant_answer(tenant)
        with_secret = replace(shown, secret=tenant.secrets[0])
        return Answer(body=with_secret, kept_body=shown, status=201)

    async def list_tenants(self, call: Call[PageQuery, None]) -> Answer:
        cursors = Cursors(call.caller.tenant_id, "tenants")
        query = call.query
        after = "" if query.cursor is None else cursors.read(query.cursor, str)
        page, last = cut(await self._tenants.list_tenants(query.limit + 1, after), query.limit)
        return Answer(
            body=TenantPage(
                items=[tenant_answer(tenant) for tenant in page],
                next_cursor=None if last is None else cursors.write(last.name),
            )
        )

    async def add_token(self, call: Call[NoQuery, TokenRequest]) -> Answer:
        written = call.body
        text = TOKEN_PREFIX + urlsafe_b64encode(token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        token = Token(
            digest=digest_of(text),
            tenant_id=written.tenant_id or call.caller.tenant_id,
            name=check_name(written.name),
            scopes=tuple(scope.value for scope in sorted(set(written.scopes))),
            created_at_us=call.now_us,
        )
        await self._tenants.add_token(call.caller.actor, token)
        shown = token_answer(token)
        return Answer(body=replace(shown, token=text), kept_body=shown, status=201)

    async def list_tokens(self, call: Call[TokensQuery, None]) -> Answer:
        query = call.query
        tenant_id = query.tenant_id or call.caller.tenant_id
        if not await self._tenants.read([tenant_id]):
            raise TenantNotFound
        cursors = Cursors(tenant_id, "tokens")
        begin = 0 if query.cursor is None else cursors.read(query.cursor, int)
        # Tokens are never removed, so that a count of them is a place in their list.
        found = (await self._tenants.list_tokens(tenant_id))[begin : begin + query.limit + 1]
        page, last = cut(found, query.limit)
        return Answer(
            body=TokenPage(
                items=[token_answer(token) for token in page],
                next_cursor=None if last is None else cursors.write(begin + len(page)),
            )
        )

    async def revoke_token(self, call: Call[NoQuery, None]) -> Answer:
        try:
            digest = bytes.fromhex(call.path["token_id"])
        except ValueError:
            raise TokenNotFound from None
        token = await self._tenants.revoke_token(call.caller.actor, digest)
        return Answer(body=token_answer(token))


def tenant_answer(tenant: Tenant) -> TenantAnswer:
    """A tenant without its secrets."""
    return TenantAnswer(
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        weight=tenant.weight,
        job_quota=tenant.job_quota,
        requests_per_second=tenant.requests_per_second,
        created_at=instant(tenant.created_at_us),
    )


def token_answer(token: Token) -> TokenAnswer:
    """A token without its text, which nobody knows any more."""
    return TokenAnswer(
        token_id=token.digest.hex(),
        tenant_id=token.tenant_id,
        name=token.name,
        scopes=token.scopes,
        created_at=instant(token.created_at_us),
        revoked_at=instant_or_none(token.revoked_at_us),
    )
