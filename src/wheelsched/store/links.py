"""Keys and addresses of links, on Postgres."""

from uuid import UUID

from wheelsched.ports import PUBLISHED_US, LinkedShard
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("links.sql")


class PostgresLinks:
    """`LinkStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def publish(self, process_id: UUID, key: bytes) -> None:
        await self._database.fetch(QUERIES["publish_key"], process_id, key, PUBLISHED_US)

    async def withdraw(self, process_id: UUID) -> None:
        await self._database.fetch(QUERIES["withdraw_key"], process_id)

    async def key_of(self, process_id: UUID) -> bytes | None:
        key: bytes | None = await self._database.fetchval(
            QUERIES["read_key"], process_id, PUBLISHED_US
        )
        return key

    async def shards(self) -> list[LinkedShard]:
        rows = await self._database.fetch(QUERIES["list_linked_shards"])
        return [LinkedShard(*row) for row in rows]
