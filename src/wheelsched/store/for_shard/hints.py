"""Hints, by LISTEN and NOTIFY: a shard learns of a changed job as soon as the change commits.

Invariant: hints are an accelerator. Everything that they say is in the tables too, where a shard
that missed one finds it.

Postgres delivers pending notices before it starts the next statement. So after two round trips on
the listening connection, every hint that was committed before the first has arrived. A round trip
counts only if the server process that listens has answered it: behind a pooler it may be another.
"""

from collections.abc import Callable, Sequence
from typing import Final, Self
from uuid import UUID

import structlog

from wheelsched.closing import Closing
from wheelsched.config import StoreConfig
from wheelsched.core.partition import PARTITIONS, partition_of
from wheelsched.errors import HintsLost, NoPrimary, StoreUnavailable
from wheelsched.ports import Hint
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.connection import Connection, RawConnection
from wheelsched.store.connections.failure import translated_errors
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.connections.session import Session

log = structlog.get_logger("wheelsched.store")

QUERIES = load_queries("session.sql")
CHANNEL = "wheelsched"
CLOSE_TIMEOUT_S: Final = 1


class PostgresHints(Closing):
    """`HintSource` on Postgres: a separate connection that listens."""

    def __init__(self, connection: RawConnection, pid: int) -> None:
        self._connection = connection
        self._pid = pid  # of the server process that listens

    @classmethod
    async def open(
        cls,
        config: StoreConfig,
        on_hint: Callable[[Hint], None],
        connector: Connector | None = None,
    ) -> Self:
        """Starts to listen. After an error, open a new one and reload everything.

        With the connector of the database, hints come from the server that its statements use.
        """

        def receive(_: object, __: int, ___: str, payload: object) -> None:
            for parsed in parse_hints(str(payload)):
                on_hint(parsed)

        connector = connector or Connector(config.url, config.connect_timeout_ms)
        session = Session(
            name="wheelsched-hints",
            settings={"role": f"wheelsched_{config.role}"},
            command_timeout_ms=config.lease_timeout_ms,
        )
        with translated_errors():
            connection = await connector.connect(session)
            try:
                await connection.add_listener(CHANNEL, receive)
                listening = await connection.fetchrow(QUERIES["prove_listening"])
                assert listening is not None
                return cls(connection, listening["pid"])
            except BaseException:
                connection.terminate()
                raise

    async def confirm(self) -> None:
        with translated_errors():
            try:
                for _ in range(2):
                    await self._prove_listening()
            except BaseException:
                self._connection.terminate()  # a server that hangs would delay `close`
                raise

    async def _prove_listening(self) -> None:
        if self._connection.is_closed():
            raise StoreUnavailable
        answered = await self._connection.fetchrow(QUERIES["prove_listening"])
        assert answered is not None
        if answered["pid"] != self._pid:
            raise HintsLost(
                f"{HintsLost.__doc__}: server process {self._pid} listens, but {answered['pid']} "
                "has answered; is there a pooler in transaction mode?"
            )
        if not answered["is_listening"]:
            raise HintsLost(f"{HintsLost.__doc__}: its server process no longer listens")
        if not answered["is_writable"]:
            raise NoPrimary("the server that sends hints became a standby")

    async def close(self) -> None:
        """Stops listening."""
        with translated_errors():
            await self._connection.close(timeout=CLOSE_TIMEOUT_S)


async def hint(connection: Connection, job_id: UUID) -> None:
    """Notifies the shard of a changed job when the transaction commits."""
    await connection.execute(QUERIES["hint"], job_id)


async def hint_many(connection: Connection, job_ids: Sequence[UUID]) -> None:
    """Notifies the shards of many changed jobs when the transaction commits."""
    await connection.execute(QUERIES["hint_many"], job_ids)


def parse_hints(payload: str) -> list[Hint]:
    """The hints in a notice. An invalid notice is logged and ignored: any role may send one.

    `7` is a partition that became free, `7 <job id>` a changed job of that partition, `* <job ids>`
    changed jobs of any partition, and `+7 <job id>` a new draft.
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
