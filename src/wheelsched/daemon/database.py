"""Operator commands that run directly on a database, without an API.

Invariant: they connect as the owner of the schema, unlike the statements of a shard or the API.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom
from typing import Final, TypeVar
from uuid import UUID

from msgspec import Struct

from wheelsched.api.environment import Environment
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery
from wheelsched.api.resources.tenants import Tenants, tenant_answer
from wheelsched.api.resources.tokens import Tokens, token_answer
from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.config import StoreConfig
from wheelsched.daemon.api import LOCAL_TENANT_ID
from wheelsched.daemon.bootstrap import open_clock
from wheelsched.errors import TenantNotFound
from wheelsched.ports import Caller, Stores, Tenant
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.session import Session
from wheelsched.store.for_api.grants import Grants
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.schema.migrate import known_migrations, migrate, pending
from wheelsched.store.schema.retention import Retention
from wheelsched.store.schema.settings import Settings, change_settings, read_settings
from wheelsched.wire.instant import instant
from wheelsched.wire.tenant import (
    GrantAnswer,
    RotateRequest,
    Scope,
    TenantAnswer,
    TenantChanges,
    TenantRequest,
    TokenAnswer,
    TokenRequest,
)

CONNECT_TIMEOUT_MS: Final = 10_000
CLOSE_TIMEOUT_S: Final = 2
SESSION: Final = Session(
    name="wheelsched-operator",
    command_timeout_ms=600_000,  # per migration, which may rewrite a table
)
ACTOR: Final = "command line"
PAGE: Final = 500

Body = TypeVar("Body")


class SchemaStatus(Struct, frozen=True, kw_only=True):
    """Applied and pending migrations; the settings, if none is pending."""

    applied: list[str]
    pending: list[str]
    settings: Settings | None = None


class MigrationReport(Struct, frozen=True, kw_only=True):
    """The names of the applied migrations, and the statements that repaired roles and rights."""

    applied: list[str]
    repaired: list[str]


async def migrate_database(url: str) -> MigrationReport:
    """Applies pending migrations, and repairs roles and rights."""
    async with _connected(url) as connection:
        migrated = await migrate(connection)
    async with await Database.open(StoreConfig(url=url, role="owner")) as database:
        await Retention(database).make_days_ahead()
    return MigrationReport(
        applied=[f"{each.number:04}_{each.name}" for each in migrated.applied],
        repaired=migrated.repaired,
    )


async def read_schema(url: str) -> SchemaStatus:
    """The applied and pending migrations."""
    async with _connected(url) as connection:
        missing = {migration.number for migration in await pending(connection)}
        settings = None if missing else await read_settings(connection)
    named = [(each.number, f"{each.number:04}_{each.name}") for each in known_migrations()]
    return SchemaStatus(
        applied=[name for number, name in named if number not in missing],
        pending=[name for number, name in named if number in missing],
        settings=settings,
    )


async def change_database_settings(url: str, changes: dict[str, int]) -> Settings:
    """Changes the given settings and returns all of them."""
    async with await Database.open(StoreConfig(url=url, role="owner", connections=1)) as database:
        return await change_settings(database, ACTOR, changes)


async def read_database_settings(url: str) -> Settings:
    """The settings of an installation."""
    async with _connected(url) as connection:
        return await read_settings(connection)


class Operator:
    """Manages tenants and tokens by the same rules as the API."""

    def __init__(
        self, database: Database, stores: Stores, grants: Grants, clock: DatabaseClock
    ) -> None:
        self.database = database
        self.stores = stores
        self.grants = grants
        self.clock = clock
        environment = Environment(
            clock=SystemClock(), now_us=clock.now_us, random=SystemRandom(), metrics=str
        )
        self._tenants = Tenants(stores.tenants, environment)
        self._tokens = Tokens(stores.tenants)

    async def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        response = await self._tenants.create(self._call(request))
        return _body(response, TenantAnswer)

    async def list_tenants(self) -> list[TenantAnswer]:
        return [tenant_answer(tenant) async for tenant in self._all_tenants()]

    async def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        response = await self._tenants.edit(self._call(changes, tenant_id=str(tenant_id)))
        return _body(response, TenantAnswer)

    async def rotate_secret(self, tenant_id: UUID, request: RotateRequest) -> TenantAnswer:
        response = await self._tenants.rotate_secret(self._call(request, tenant_id=str(tenant_id)))
        return _body(response, TenantAnswer)

    async def read_secrets(self, tenant_id: UUID) -> tuple[str, ...]:
        """The signing secrets of a tenant, newest first."""
        for tenant in await self.stores.tenants.read([tenant_id]):
            return tenant.secrets
        raise TenantNotFound

    async def create_token(self, request: TokenRequest) -> TokenAnswer:
        response = await self._tokens.add(self._call(request))
        return _body(response, TokenAnswer)

    async def list_tokens(self, tenant_id: UUID | None) -> list[TokenAnswer]:
        tokens = await self.stores.tenants.list_tokens(tenant_id or LOCAL_TENANT_ID)
        return [token_answer(token) for token in tokens]

    async def revoke_token(self, token_id: str) -> TokenAnswer:
        response = await self._tokens.revoke(self._call(None, token_id=token_id))
        return _body(response, TokenAnswer)

    async def grant(self, tenant_id: UUID, database_role: str) -> None:
        await self.grants.grant(ACTOR, tenant_id, database_role)

    async def revoke(self, tenant_id: UUID, database_role: str) -> None:
        await self.grants.revoke(ACTOR, tenant_id, database_role)

    async def list_grants(self) -> list[GrantAnswer]:
        return [
            GrantAnswer(
                database_role=grant.database_role,
                tenant=grant.tenant,
                granted_at=instant(grant.granted_at_us),
            )
            for grant in await self.grants.list_grants()
        ]

    async def _all_tenants(self) -> AsyncIterator[Tenant]:
        after = ""
        while page := await self.stores.tenants.list_tenants(PAGE, after):
            for tenant in page:
                yield tenant
            after = page[-1].name

    def _call(self, body: Body, **path: str) -> Call[NoQuery, Body]:
        return Call(
            caller=Caller(LOCAL_TENANT_ID, ACTOR),
            now_us=self.clock.now_us(),
            query=NoQuery(),
            body=body,
            path=path,
            scopes=frozenset(Scope),
        )


@asynccontextmanager
async def open_operator(url: str) -> AsyncIterator[Operator]:
    """An operator on a database with an up-to-date schema."""
    async with await Database.open(StoreConfig(url=url, role="owner", connections=2)) as database:
        stores = PostgresStore(database)
        clock = await open_clock(SystemClock(), stores.leases)
        yield Operator(database, stores, Grants(database), clock)


Answered = TypeVar("Answered")


def _body(response: ApiResponse, kind: type[Answered]) -> Answered:
    assert isinstance(response.body, kind)
    return response.body


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    with translated_errors():
        connection = await Connector(url, CONNECT_TIMEOUT_MS).connect(SESSION)
        try:
            yield connection
        finally:
            await connection.close(timeout=CLOSE_TIMEOUT_S)
