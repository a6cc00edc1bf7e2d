"""Programs that schedule and cancel in transactions of their own: on the twin, and on Postgres."""

from typing import Protocol, Self
from uuid import UUID, uuid4

import msgspec
from tests.postgres import Connect

from wheelsched.ports import Caller
from wheelsched.store.connections.connection import Connection
from wheelsched.testing import MemoryStore
from wheelsched.testing.application import IfExists, MemoryTransaction


class Transaction(Protocol):
    """A transaction of an application, until it ends."""

    async def schedule(
        self, document: dict[str, object], if_exists: IfExists = "error"
    ) -> UUID: ...
    async def cancel(self, job: UUID | str) -> bool | None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class Application(Protocol):
    """A program that schedules and cancels: in a transaction, or in one that commits at once."""

    async def begin(self, caller: Caller) -> Transaction: ...
    async def schedule(self, caller: Caller, document: dict[str, object]) -> UUID: ...
    async def cancel(self, caller: Caller, job_id: UUID) -> bool | None: ...


class TransactionInMemory:
    """`Transaction` on the twin."""

    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction

    async def schedule(self, document: dict[str, object], if_exists: IfExists = "error") -> UUID:
        return self._transaction.schedule(uuid4(), document, if_exists)

    async def cancel(self, job: UUID | str) -> bool | None:
        return self._transaction.cancel(job)

    async def commit(self) -> None:
        self._transaction.commit()

    async def rollback(self) -> None:
        self._transaction.rollback()


class InMemory:
    """`Application` on the twin."""

    def __init__(self, store: MemoryStore) -> None:
        self._application = store.application

    async def begin(self, caller: Caller) -> Transaction:
        return TransactionInMemory(self._application.begin(caller))

    async def schedule(self, caller: Caller, document: dict[str, object]) -> UUID:
        return self._application.schedule(caller, uuid4(), document).job_id

    async def cancel(self, caller: Caller, job_id: UUID) -> bool | None:
        return self._application.cancel(caller, job_id)


class TransactionOnPostgres:
    """`Transaction` that calls the functions on a connection of its own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transaction = connection.transaction()

    async def begin(self) -> Self:
        await self._transaction.start()
        return self

    async def schedule(self, document: dict[str, object], if_exists: IfExists = "error") -> UUID:
        written = dict(document)
        target = dict(written.pop("target"))  # type: ignore[call-overload]
        job_id: UUID = await self._connection.fetchval(
            "SELECT wheelsched.schedule($1, $2, $3, $4, $5, $6, $7)",
            written.pop("name"),
            written.pop("schedule"),
            target.pop("url"),
            msgspec.json.encode(written.pop("payload", None)).decode(),
            written.pop("timezone", "UTC"),
            msgspec.json.encode(written | {"target": target}).decode(),
            if_exists,
        )
        return job_id

    async def cancel(self, job: UUID | str) -> bool | None:
        kind = "uuid" if isinstance(job, UUID) else "text"
        was_in_time: bool | None = await self._connection.fetchval(
            f"SELECT wheelsched.cancel($1::{kind})", job
        )
        return was_in_time

    async def commit(self) -> None:
        await self._transaction.commit()
        await self._connection.close()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self._connection.close()


class OnPostgres:
    """`Application` that calls the functions, as a role for each tenant."""

    def __init__(self, url: str, owner: Connection, connect: Connect) -> None:
        self._url = url
        self._owner = owner
        self._connect = connect
        self._roles: set[str] = set()

    async def begin(self, caller: Caller) -> Transaction:
        role = f"app_{caller.tenant_id.hex}"
        if role not in self._roles:
            await self._owner.execute(f"CREATE ROLE {role}")
            await self._owner.execute(
                "INSERT INTO database_roles VALUES ($1, $2)", role, caller.tenant_id
            )
            self._roles.add(role)
        connection = await self._connect(self._url, role=role, search_path="public")
        return await TransactionOnPostgres(connection).begin()

    async def schedule(self, caller: Caller, document: dict[str, object]) -> UUID:
        transaction = await self.begin(caller)
        job_id = await transaction.schedule(document)
        await transaction.commit()
        return job_id

    async def cancel(self, caller: Caller, job_id: UUID) -> bool | None:
        transaction = await self.begin(caller)
        was_in_time = await transaction.cancel(job_id)
        await transaction.commit()
        return was_in_time
