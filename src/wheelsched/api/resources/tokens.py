"""API tokens.

Invariant: a token leaves this process once, in the response that created it; the store keeps only
its digest. Without the scope `operator` a caller cannot create, see or revoke tokens of other
tenants, or tokens with that scope.
"""

from base64 import urlsafe_b64encode
from secrets import token_bytes
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from wheelsched.api.http.authentication import TOKEN_BYTES, TOKEN_PREFIX, digest_of, require
from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.pages import PageQuery, split_page
from wheelsched.errors import ScopeMissing, TenantNotFound, TokenNotFound
from wheelsched.ports import TenantStore, Token
from wheelsched.values.labels import check_name
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.tenant import Scope, TokenAnswer, TokenPage, TokenRequest

_OPERATORS_ONLY: Final = (
    "Other tenants, and tokens with the scope `operator`, require that scope as well."
)


class TokensQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tokens to list; by default the caller's own."""

    tenant_id: UUID | None = None


class Tokens:
    """Operations on tokens."""

    def __init__(self, tenants: TenantStore) -> None:
        self._tenants = tenants

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/tokens",
                summary="Create a token",
                description=_OPERATORS_ONLY,
                scope=Scope.ADMIN,
                handle=self.add,
                body=TokenRequest,
                response=TokenAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tokens",
                summary="List the tokens of a tenant, oldest first",
                description=_OPERATORS_ONLY,
                scope=Scope.ADMIN,
                handle=self.list_tokens,
                query=TokensQuery,
                response=TokenPage,
            ),
            Operation(
                method="DELETE",
                path="/tokens/{token_id}",
                summary="Revoke a token",
                description=_OPERATORS_ONLY,
                scope=Scope.ADMIN,
                handle=self.revoke,
                response=TokenAnswer,
            ),
        )

    async def add(self, call: Call[NoQuery, TokenRequest]) -> ApiResponse:
        body = call.body
        tenant_id = tenant_of(call, body.tenant_id)
        if Scope.OPERATOR in body.scopes:
            require(Scope.OPERATOR, call.scopes)
        text = TOKEN_PREFIX + urlsafe_b64encode(token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        token = Token(
            digest=digest_of(text),
            tenant_id=tenant_id,
            name=check_name(body.name),
            scopes=tuple(scope.value for scope in sorted(set(body.scopes))),
            created_at_us=call.now_us,
        )
        await self._tenants.add_token(call.caller.actor, token)
        shown = token_answer(token)
        return ApiResponse(body=replace(shown, token=text), kept_body=shown, status=201)

    async def list_tokens(self, call: Call[TokensQuery, None]) -> ApiResponse:
        query = call.query
        tenant_id = tenant_of(call, query.tenant_id)
        if not await self._tenants.read([tenant_id]):
            raise TenantNotFound
        cursors = Cursors(tenant_id, "tokens")
        begin = 0 if query.cursor is None else cursors.read(query.cursor, int)
        # Tokens are never removed, so an index into the list stays valid.
        found = (await self._tenants.list_tokens(tenant_id))[begin : begin + query.limit + 1]
        page, last = split_page(found, query.limit)
        return ApiResponse(
            body=TokenPage(
                items=[token_answer(token) for token in page],
                next_cursor=None if last is None else cursors.write(begin + len(page)),
            )
        )

    async def revoke(self, call: Call[NoQuery, None]) -> ApiResponse:
        try:
            digest = bytes.fromhex(call.path["token_id"])
        except ValueError:
            raise TokenNotFound from None
        if not call.is_operator:
            await self._check_own(call, digest)
        token = await self._tenants.revoke_token(call.caller.actor, digest)
        return ApiResponse(body=token_answer(token))

    async def _check_own(self, call: Call[NoQuery, None], digest: bytes) -> None:
        token = await self._tenants.find_token(digest)
        if token is None or token.tenant_id != call.caller.tenant_id:
            raise TokenNotFound
        if Scope.OPERATOR in token.scopes:
            require(Scope.OPERATOR, call.scopes)


def tenant_of(
    call: Call[NoQuery, TokenRequest] | Call[TokensQuery, None], named: UUID | None
) -> UUID:
    """The tenant that a call concerns; only operators may name another than their own."""
    if named is None or named == call.caller.tenant_id:
        return call.caller.tenant_id
    if not call.is_operator:
        raise ScopeMissing("access to another tenant requires a token with the scope 'operator'")
    return named


def token_answer(token: Token) -> TokenAnswer:
    """A token without its text, which is not stored."""
    return TokenAnswer(
        token_id=token.digest.hex(),
        tenant_id=token.tenant_id,
        name=token.name,
        scopes=token.scopes,
        created_at=instant(token.created_at_us),
        revoked_at=instant_or_none(token.revoked_at_us),
    )
