"""Requests with an Idempotency-Key, on Postgres.

Invariant: of concurrent requests with the same key, one gets the ticket, by the primary key.
"""

import asyncpg
import msgspec

from wheelsched.ports import Caller, KeptAnswer, KeyedRequest
from wheelsched.store.connections.database import Database
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("idempotency.sql")
HEADERS = msgspec.json.Decoder(dict[str, str])


class PostgresIdempotency:
    """`IdempotencyStore` on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self, caller: Caller, key: str, digest: bytes, takeover_after_us: int
    ) -> KeyedRequest:
        async with self._database.tenant(caller) as connection:
            ours = await connection.fetchrow(QUERIES["begin"], key, digest, takeover_after_us)
            if ours is not None:
                return KeyedRequest(
                    digest=digest, begun_at_us=ours["begun_at"], ticket=ours["tried_at"]
                )
            row = await connection.fetchrow(QUERIES["read"], key)
        if row is None:  # deleted in between: the client is told to retry, as for a busy key
            return KeyedRequest(digest=digest, begun_at_us=0)
        return KeyedRequest(
            digest=row["digest"], begun_at_us=row["begun_at"], answer=_decode_answer(row)
        )

    async def keep(self, caller: Caller, key: str, answer: KeptAnswer) -> None:
        headers = msgspec.json.encode(answer.headers)
        async with self._database.tenant(caller) as connection:
            await connection.execute(QUERIES["keep"], key, answer.status, headers, answer.body)

    async def give_back(self, caller: Caller, key: str, ticket: int) -> None:
        async with self._database.tenant(caller) as connection:
            await connection.execute(QUERIES["give_back"], key, ticket)

    async def forget(self, caller: Caller, key: str, ticket: int) -> None:
        async with self._database.tenant(caller) as connection:
            await connection.execute(QUERIES["forget"], key, ticket)


def _decode_answer(row: asyncpg.Record) -> KeptAnswer | None:
    if row["status"] is None:
        return None
    return KeptAnswer(
        status=row["status"], headers=HEADERS.decode(row["headers"]), body=row["body"]
    )
