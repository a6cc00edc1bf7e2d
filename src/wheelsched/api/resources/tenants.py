"""Tenants: created and changed by operators.

Invariant: a secret leaves this process once, in the response that created it. A change applies only
to the version of the tenant that was read.
"""

from collections.abc import Callable
from secrets import token_bytes
from typing import Any, Final
from uuid import UUID

from msgspec.structs import asdict, replace

from wheelsched.api.environment import Environment
from wheelsched.api.http.cursors import Cursors
from wheelsched.api.http.operation import JSON, MERGE_PATCH, ApiResponse, Call, NoQuery, Operation
from wheelsched.api.http.pages import PageQuery, split_page
from wheelsched.api.resources.optimistic_retry import retry_on_conflict
from wheelsched.errors import TenantChanged, TenantNotFound
from wheelsched.jobs.job_ids import Identities
from wheelsched.ports import Tenant, TenantStore
from wheelsched.values.labels import check_name
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
    """Operations on tenants."""

    def __init__(self, tenants: TenantStore, environment: Environment) -> None:
        self._tenants = tenants
        self._environment = environment

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="POST",
                path="/tenants",
                summary="Create a tenant",
                scope=Scope.OPERATOR,
                handle=self.create,
                body=TenantRequest,
                response=TenantAnswer,
                status=201,
            ),
            Operation(
                method="GET",
                path="/tenants",
                summary="List tenants by name",
                scope=Scope.OPERATOR,
                handle=self.list_tenants,
                query=PageQuery,
                response=TenantPage,
            ),
            Operation(
                method="PATCH",
                path="/tenants/{tenant_id}",
                summary="Change the name, weight or quotas of a tenant",
                scope=Scope.OPERATOR,
                handle=self.edit,
                body=TenantChanges,
                content_types=(MERGE_PATCH, JSON),
                response=TenantAnswer,
            ),
            Operation(
                method="POST",
                path="/tenants/{tenant_id}/rotate-secret",
                summary="Add a new signing secret next to the old one, or remove the old one",
                scope=Scope.OPERATOR,
                handle=self.rotate_secret,
                body=RotateRequest,
                is_body_optional=True,
                response=TenantAnswer,
            ),
        )

    async def create(self, call: Call[NoQuery, TenantRequest]) -> ApiResponse:
        body = call.body
        tenant = Tenant(
            tenant_id=Identities(call.now_us, call.seed, self._environment.random).next(),
            name=check_name(body.name),
            weight=body.weight,
            job_quota=body.job_quota,
            requests_per_second=body.requests_per_second,
            secrets=(new_secret(),),
            created_at_us=call.now_us,
        )
        await self._tenants.create(call.caller.actor, tenant)
        return _with_secret(tenant, status=201)

    async def list_tenants(self, call: Call[PageQuery, None]) -> ApiResponse:
        cursors = Cursors(call.caller.tenant_id, "tenants")
        query = call.query
        after = "" if query.cursor is None else cursors.read(query.cursor, str)
        page, last = split_page(
            await self._tenants.list_tenants(query.limit + 1, after), query.limit
        )
        return ApiResponse(
            body=TenantPage(
                items=[tenant_answer(tenant) for tenant in page],
                next_cursor=None if last is None else cursors.write(last.name),
            )
        )

    async def edit(self, call: Call[NoQuery, TenantChanges]) -> ApiResponse:
        changes = {name: value for name, value in asdict(call.body).items() if value is not None}
        if "name" in changes:
            check_name(changes["name"])
        tenant = await self._change(call, lambda before: replace(before, **changes))
        return ApiResponse(body=tenant_answer(tenant))

    async def rotate_secret(self, call: Call[NoQuery, RotateRequest]) -> ApiResponse:
        """Adds a new secret next to the old one, or removes the old one.

        The old secret stays until then, so a new secret that got lost can simply be replaced.
        """
        if call.body.finish:
            tenant = await self._change(
                call, lambda before: replace(before, secrets=before.secrets[:1])
            )
            return ApiResponse(body=tenant_answer(tenant))
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

        async def read_and_change() -> Tenant:
            found = await self._tenants.read([tenant_id])
            if not found:
                raise TenantNotFound
            tenant = change(found[0])
            await self._tenants.edit(call.caller.actor, tenant, found[0])
            return tenant

        return await retry_on_conflict(read_and_change, TenantChanged)


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


def _with_secret(tenant: Tenant, status: int = 200) -> ApiResponse:
    shown = tenant_answer(tenant)
    return ApiResponse(
        body=replace(shown, secret=tenant.secrets[0]), kept_body=shown, status=status
    )


def new_secret() -> str:
    """A new secret to sign callbacks with."""
    return write_secret(token_bytes(SECRET_BYTES))
