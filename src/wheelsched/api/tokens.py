"""Tokens: who may ask the API for what.

Invariant: a token leaves this process once, in the answer that made it; the store has its digest
and no more. Without the scope `operator`, nobody makes, sees or ends a token of another tenant, or
one that has that scope.
"""

from base64 import urlsafe_b64encode
from secrets import token_bytes
from uuid import UUID

from msgspec.structs import replace

from wheelsched.api.authentication import TOKEN_BYTES, TOKEN_PREFIX, digest_of, require
from wheelsched.api.cursors import Cursors
from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.pages import PageQuery, cut
from wheelsched.core.labels import check_name
from wheelsched.errors import ScopeMissing, TenantNotFound, TokenNotFound
from wheelsched.ports import TenantStore, Token
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.tenant import Scope, TokenAnswer, TokenPage, TokenRequest


class TokensQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tokens; the caller's own by default."""

    tenant_id: UUID | None = None


class Tokens:
    """What is asked about tokens."""

    def __init__(self, tenants: TenantStore) -> None:
        self._tenants = tenants

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/tokens",
                summary="Make a token; for another tenant, or another operator, as an operator",
                scope=Scope.ADMIN,
                handle=self.add,
                body=TokenRequest,
                answer=TokenAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tokens",
                summary="List the tokens of a tenant, oldest first; of another one as an operator",
                scope=Scope.ADMIN,
                handle=self.list_tokens,
                query=TokensQuery,
                answer=TokenPage,
            ),
            Operation(
                method="DELETE",
                path="/tokens/{token_id}",
                summary="Revoke a token; that of another tenant, or of an operator, as an operator",
                scope=Scope.ADMIN,
                handle=self.revoke,
                answer=TokenAnswer,
            ),
        )

    async def add(self, call: Call[NoQuery, TokenRequest]) -> Answer:
        written = call.body
        tenant_id = tenant_of(call, written.tenant_id)
        if Scope.OPERATOR in written.scopes:
            require(Scope.OPERATOR, call.scopes)
        text = TOKEN_PREFIX + urlsafe_b64encode(token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        token = Token(
            digest=digest_of(text),
            tenant_id=tenant_id,
            name=check_name(written.name),
            scopes=tuple(scope.value for scope in sorted(set(written.scopes))),
            created_at_us=call.now_us,
        )
        await self._tenants.add_token(call.caller.actor, token)
        shown = token_answer(token)
        return Answer(body=replace(shown, token=text), kept_body=shown, status=201)

    async def list_tokens(self, call: Call[TokensQuery, None]) -> Answer:
        query = call.query
        tenant_id = tenant_of(call, query.tenant_id)
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

    async def revoke(self, call: Call[NoQuery, None]) -> Answer:
        try:
            digest = bytes.fromhex(call.path["token_id"])
        except ValueError:
            raise TokenNotFound from None
        if not call.is_operator:
            await self._check_own(call, digest)
        token = await self._tenants.revoke_token(call.caller.actor, digest)
        return Answer(body=token_answer(token))

    async def _check_own(self, call: Call[NoQuery, None], digest: bytes) -> None:
        token = await self._tenants.find_token(digest)
        if token is None or token.tenant_id != call.caller.tenant_id:
            raise TokenNotFound
        if Scope.OPERATOR in token.scopes:
            require(Scope.OPERATOR, call.scopes)


def tenant_of(
    call: Call[NoQuery, TokenRequest] | Call[TokensQuery, None], named: UUID | None
) -> UUID:
    """The tenant that a call is about; who is no operator names none but their own."""
    if named is None or named == call.caller.tenant_id:
        return call.caller.tenant_id
    if not call.is_operator:
        raise ScopeMissing(
            "what is asked of another tenant needs a token with the scope 'operator'"
        )
    return named


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
