"""What an operator asks of a database itself, without an API before it.

Invariant: whoever is asked for here is the owner of the schema; no statement of a shard or of the
API goes this way.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom
from typing import Final, TypeVar
from uuid import UUID

import asyncpg
from msgspec import Struct

from wheelsched.api.operation import Answer, Call, NoQuery
from wheelsched.api.surroundings import Surroundings
from wheelsched.api.tenants import Tenants, tenant_answer
from wheelsched.api.tokens import Tokens, token_answer
from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.config import StoreConfig
from wheelsched.daemon.api import LOCAL_TENANT_ID
from wheelsched.daemon.opening import open_clock
from wheelsched.errors import TenantNotFound
from wheelsched.ports import Caller, Stores, Tenant
from wheelsched.store.connection import Connection
from wheelsched.store.database import Database
from wheelsched.store.failure import named_failures
from wheelsched.store.grants import Grants
from wheelsched.store.migrate import known_migrations, migrate, pending
from wheelsched.store.postgres import PostgresStore
from wheelsched.store.retention import Retention
from wheelsched.store.settings import Settings, change_settings, read_settings
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

CONNECT_TIMEOUT_S: Final = 10
COMMAND_TIMEOUT_S: Final = 600  # of one migration, which may rewrite a table
ACTOR: Final = "command line"
PAGE: Final = 500

Body = TypeVar("Body")


class SchemaStatus(Struct, frozen=True, kw_only=True):
    """Which migrations a database has, and which it lacks; its settings, once it has them all."""

    applied: list[str]
    pending: list[str]
    settings: Settings | None = None


async def migrate_database(url: str) -> list[str]:
    """Brings a database to the program's schema; gives the names of what it lacked."""
    async with _connected(url) as connection:
        names = [f"{applied.number:04}_{applied.name}" for applied in await migrate(connection)]
    async with await Database.open(StoreConfig(url=url, role="owner")) as database:
        await Retention(database).make_days_ahead()
    return names


async def read_schema(url: str) -> SchemaStatus:
    """What `migrate_database` has done, and would do."""
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
    """Changes the settings that are given, and gives all of them."""
    async with await Database.open(StoreConfig(url=url, role="owner", connections=1)) as database:
        return await change_settings(database, ACTOR, changes)


async def read_database_settings(url: str) -> Settings:
    """The settings of an installation."""
    async with _connected(url) as connection:
        return await read_settings(connection)


class Operator:
    """Tenants and tokens, by the same rules as over the API."""

    def __init__(self, stores: Stores, grants: Grants, clock: DatabaseClock) -> None:
        self.stores = stores
        self.grants = grants
        self.clock = clock
        surroundings = Surroundings(
            clock=SystemClock(), now_us=clock.now_us, random=SystemRandom(), metrics=str
        )
        self._tenants = Tenants(stores.tenants, surroundings)
        self._tokens = Tokens(stores.tenants)

    async def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        answer = await self._tenants.create(self._call(request))
        return _body(answer, TenantAnswer)

    async def list_tenants(self) -> list[TenantAnswer]:
        return [tenant_answer(tenant) async for tenant in self._all_tenants()]

    async def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        answer = await self._tenants.edit(self._call(changes, tenant_id=str(tenant_id)))
        return _body(answer, TenantAnswer)

    async def rotate_secret(self, tenant_id: UUID, request: RotateRequest) -> TenantAnswer:
        answer = await self._tenants.rotate_secret(self._call(request, tenant_id=str(tenant_id)))
        return _body(answer, TenantAnswer)

    async def read_secrets(self, tenant_id: UUID) -> tuple[str, ...]:
        """What the callbacks of a tenant are signed with, newest first."""
        for tenant in await self.stores.tenants.read([tenant_id]):
            return tenant.secrets
        raise TenantNotFound

    async def create_token(self, request: TokenRequest) -> TokenAnswer:
        answer = await self._tokens.add(self._call(request))
        return _body(answer, TokenAnswer)

    async def list_tokens(self, tenant_id: UUID | None) -> list[TokenAnswer]:
        tokens = await self.stores.tenants.list_tokens(tenant_id or LOCAL_TENANT_ID)
        return [token_answer(token) for token in tokens]

    async def revoke_token(self, token_id: str) -> TokenAnswer:
        answer = await self._tokens.revoke(self._call(None, token_id=token_id))
        return _body(answer, TokenAnswer)

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
    """An operator at a database whose schema is the program's."""
    async with await Database.open(StoreConfig(url=url, role="owner", connections=2)) as database:
        stores = PostgresStore(database)
        clock = await open_clock(SystemClock(), stores.leases)
        yield Operator(stores, Grants(database), clock)


Answered = TypeVar("Answered")


def _body(answer: Answer, kind: type[Answered]) -> Answered:
    assert isinstance(answer.body, kind)
    return answer.body


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    with named_failures():
        connection = await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            server_settings={"application_name": "wheelsched-operator"},
        )
        try:
            yield connection
        finally:
            await connection.close()
