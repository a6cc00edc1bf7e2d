"""Tenant and token commands over the API, or directly on the database before there is a token.

Invariant: requests and responses are the same as those of the client.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeVar
from uuid import UUID

from wheelsched.cli.output import show, times_shown
from wheelsched.cli.shared import (
    CLIENT_CONFIG,
    Command,
    DatabaseOption,
    JsonOption,
    LocalOption,
    TokenOption,
    UrlOption,
    with_options,
)
from wheelsched.client import SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.daemon.database import Operator, open_operator
from wheelsched.wire.tenant import (
    GrantAnswer,
    RotateRequest,
    TenantAnswer,
    TenantChanges,
    TenantRequest,
    TokenAnswer,
    TokenRequest,
)

Answer = TypeVar("Answer")


class Operators(Protocol):
    """Manages tenants and tokens, over the API or on the database."""

    def create_tenant(self, request: TenantRequest) -> TenantAnswer: ...
    def list_tenants(self) -> Iterator[TenantAnswer]: ...
    def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer: ...
    def rotate_secret(self, tenant_id: UUID, request: RotateRequest) -> TenantAnswer: ...
    def create_token(self, request: TokenRequest) -> TokenAnswer: ...
    def list_tokens(self, tenant_id: UUID | None = None) -> Iterator[TokenAnswer]: ...
    def revoke_token(self, token_id: str) -> TokenAnswer: ...


class DatabaseOperators:
    """Manages tenants and tokens on the database; opens a connection for each call."""

    def __init__(self, url: str) -> None:
        self._url = url

    def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        return self._run(lambda operator: operator.create_tenant(request))

    def list_tenants(self) -> Iterator[TenantAnswer]:
        return iter(self._run(lambda operator: operator.list_tenants()))

    def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        return self._run(lambda operator: operator.update_tenant(tenant_id, changes))

    def rotate_secret(self, tenant_id: UUID, request: RotateRequest) -> TenantAnswer:
        return self._run(lambda operator: operator.rotate_secret(tenant_id, request))

    def create_token(self, request: TokenRequest) -> TokenAnswer:
        return self._run(lambda operator: operator.create_token(request))

    def list_tokens(self, tenant_id: UUID | None = None) -> Iterator[TokenAnswer]:
        return iter(self._run(lambda operator: operator.list_tokens(tenant_id)))

    def revoke_token(self, token_id: str) -> TokenAnswer:
        return self._run(lambda operator: operator.revoke_token(token_id))

    def read_secrets(self, tenant_id: UUID) -> tuple[str, ...]:
        return self._run(lambda operator: operator.read_secrets(tenant_id))

    def grant(self, tenant_id: UUID, database_role: str) -> None:
        self._run(lambda operator: operator.grant(tenant_id, database_role))

    def revoke(self, tenant_id: UUID, database_role: str) -> None:
        self._run(lambda operator: operator.revoke(tenant_id, database_role))

    def list_grants(self) -> list[GrantAnswer]:
        return self._run(lambda operator: operator.list_grants())

    def _run(self, operation: Callable[[Operator], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            async with open_operator(self._url) as operator:
                return await operation(operator)

        return asyncio.run(run())


def with_operators(command: Command) -> Callable[..., None]:
    """Gives a command `operators`: on the database if --database-url is set, otherwise over the
    API."""

    def run(
        database_url: DatabaseOption = None,
        url: UrlOption = DEFAULT_URL,
        token: TokenOption = None,
        local: LocalOption = False,
        as_json: JsonOption = False,
        **given: Any,
    ) -> None:
        with times_shown(is_local=local):
            if database_url is not None:
                show(command(operators=DatabaseOperators(database_url), **given), as_json=as_json)
                return
            with SyncClient(url, token, config=CLIENT_CONFIG) as client:
                show(command(operators=client, **given), as_json=as_json)

    return with_options(run, command, without=("operators",))
