"""Tenants: what an operator asks for.

Invariant: a secret leaves this process once, in the answer that made it. A tenant is changed from
what it was read as, or not at all.
"""

from collections.abc import Callable
from secrets import token_bytes
from typing import Any, Final
from uuid import UUID

from msgspec.structs import asdict, replace

from wheelsched.api.changes import look_and_change
from wheelsched.api.cursors import Cursors
from wheelsched.api.identities import Identities
from wheelsched.api.operation import JSON, MERGE_PATCH, Answer, Call, NoQuery, Operation
from wheelsched.api.pages import PageQuery, cut
from wheelsched.api.surroundings import Surroundings
from wheelsched.core.labels import check_name
from wheelsched.errors import TenantChanged, TenantNotFound
from wheelsched.ports import Tenant, TenantStore
from wheelsched.wire.instant import instant
from wheelsched.wire.secret import write_secret
from wheelsched.wire.tenant import (
    RotateRequest,
    Scope,
    TenantAnswer,
    TenantChanges,
    TenantPage,
    TenantRequest,
)

SECRET_BYTES: Final = 32


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
                scope=Scope.OPERATOR,
                handle=self.create,
                body=TenantRequest,
                answer=TenantAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tenants",
                summary="List tenants by name",
                scope=Scope.OPERATOR,
                handle=self.list_tenants,
                query=PageQuery,
                answer=TenantPage,
            ),
            Operation(
                method="PATCH",
                path="/tenants/{tenant_id}",
                summary="Change the name, the weight or the quotas of a tenant",
                scope=Scope.OPERATOR,
                handle=self.edit,
                body=TenantChanges,
                content_types=(MERGE_PATCH, JSON),
                answer=TenantAnswer,
            ),
            Operation(
                method="POST",
                path="/tenants/{tenant_id}/rotate-secret",
                summary="Sign with a new secret beside the old one, or with the new one alone",
                scope=Scope.OPERATOR,
                handle=self.rotate_secret,
                body=RotateRequest,
                is_body_optional=True,
                answer=TenantAnswer,
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
            secrets=(new_secret(),),
            created_at_us=call.now_us,
        )
        await self._tenants.create(call.caller.actor, tenant)
        return _with_secret(tenant, status=201)

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

    async def edit(self, call: Call[NoQuery, TenantChanges]) -> Answer:
        changes = {name: value for name, value in asdict(call.body).items() if value is not None}
        if "name" in changes:
            check_name(changes["name"])
        tenant = await self._change(call, lambda before: replace(before, **changes))
        return Answer(body=tenant_answer(tenant))

    async def rotate_secret(self, call: Call[NoQuery, RotateRequest]) -> Answer:
        """Give a tenant a secret beside the one that it had, or take the old one away.

        Until that is done the old one stays: a new one that got lost is replaced by another.
        """
        if call.body.finish:
            tenant = await self._change(
                call, lambda before: replace(before, secrets=before.secrets[:1])
            )
            return Answer(body=tenant_answer(tenant))
        secret = new_secret()
        tenant = await self._change(
            call, lambda before: replace(before, secrets=(secret, *before.secrets[-1:]))
        )
        return _with_secret(tenant)

    async def _change(self, call: Call[NoQuery, Any], change: Callable[[Tenant], Tenant]) -> Tenant:
        try:
            tenant_id = UUID(call.path["tenant_id"])
        except ValueError:
            raise TenantNotFound from None

        async def change_what_is_there() -> Tenant:
            found = await self._tenants.read([tenant_id])
            if not found:
                raise TenantNotFound
            tenant = change(found[0])
            await self._tenants.edit(call.caller.actor, tenant, found[0])
            return tenant

        return await look_and_change(change_what_is_there, TenantChanged)


def tenant_answer(tenant: Tenant) -> TenantAnswer:
    """A tenant without its secrets."""
    return TenantAnswer(
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        weight=tenant.weight,
        job_quota=tenant.job_quota,
        requests_per_second=tenant.requests_per_second,
        created_at=instant(tenant.created_at_us),
        secret_count=len(tenant.secrets),
    )


def _with_secret(tenant: Tenant, status: int = 200) -> Answer:
    shown = tenant_answer(tenant)
    return Answer(body=replace(shown, secret=tenant.secrets[0]), kept_body=shown, status=status)


def new_secret() -> str:
    """What the callbacks of a tenant are signed with."""
    return write_secret(token_bytes(SECRET_BYTES))
