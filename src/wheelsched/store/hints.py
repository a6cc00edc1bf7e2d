"""Stage *load*, on Postgres: hints that a job has changed, as soon as its change commits.

Invariant: hints only hasten. What they say is in the tables, and who misses them finds it there.

A round trip on the listening connection proves that every earlier hint has arrived: Postgres
delivers what is pending before it begins the next statement, so after two of them nothing that
had committed when the first was sent can be outstanding.
"""

from collections.abc import Callable, Sequence
from typing import Self
from uuid import UUID

import asyncpg
import structlog

from wheelsched.closing import Closing
from wheelsched.config import StoreConfig
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import StoreUnavailable
from wheelsched.ports import Hint
from wheelsched.store.connection import Connection
from wheelsched.store.failure import named_failures
from wheelsched.store.queries import load_queries

log = structlog.get_logger("wheelsched.store")

QUERIES = load_queries("session.sql")
CHANNEL = "wheelsched"


class PostgresHints(Closing):
    """`HintSource` on Postgres: a connection of its own that listens."""

    def __init__(self, connection: Connection, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_s = timeout_ms / 1000

    @classmethod
    async def open(cls, config: StoreConfig, on_hint: Callable[[Hint], None]) -> Self:
        """Listens from now on. After an error it is opened anew, and everything loaded again."""

        def receive(_: object, __: int, ___: str, payload: object) -> None:
            for parsed in parse_hints(str(payload)):
                on_hint(parsed)

        with named_failures():
            connection = await asyncpg.connect(
                config.url,
                timeout=config.connect_timeout_ms / 1000,
                command_timeout=config.lease_timeout_ms / 1000,
                server_settings={
                    "application_name": "wheelsched-hints",
                    "role": f"wheelsched_{config.role}",
                },
            )
            await connection.add_listener(CHANNEL, receive)
        return cls(connection, config.lease_timeout_ms)

    async def confirm(self) -> None:
        with named_failures():
            if self._connection.is_closed():
                raise StoreUnavailable
            for _ in range(2):
                await self._connection.fetchval(QUERIES["round_trip"], timeout=self._timeout_s)

    async def close(self) -> None:
        """Listens no more."""
        with named_failures():
            await self._connection.close(timeout=self._timeout_s)


async def hint(connection: Connection, job_id: UUID) -> None:
    """Tells the shard of a job that it has changed, when the transaction commits."""
    await connection.execute(QUERIES["hint"], job_id)


async def hint_many(connection: Connection, job_ids: Sequence[UUID]) -> None:
    """Tells the shards of many jobs that they have changed, when the transaction commits."""
    await connection.execute(QUERIES["hint_many"], job_ids)


def parse_hints(payload: str) -> list[Hint]:
    """The hints that a notice spells. Anybody may notify: what is none is logged and ignored.

    `7` is a partition that became free, `7 <job id>` a job of that partition, and `* <job ids>`
    jobs of any. `+7 <job id>` is one that is to be planned.
    """
    place, *job_ids = payload.split(" ")
    try:
        jobs = [UUID(job_id) for job_id in job_ids]
        if place == "*":
            return [Hint(partition_of(job_id), job_id) for job_id in jobs]
        partition = int(place)
    except ValueError:
        partition = -1
    if not 0 <= partition < PARTITIONS or len(job_ids) > 1:
        log.warning("hint.ignored", payload=payload[:80])
        return []
    return [Hint(partition, jobs[0] if jobs else None, place.startswith("+"))]
