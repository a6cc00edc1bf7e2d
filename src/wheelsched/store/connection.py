"""Under every stage: what a connection to Postgres is.

Invariant: instants are integer microseconds on our side and `timestamptz` on the other; JSON is
bytes, exactly as written. No other module of the store converts either.
"""

from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection

POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01T00:00:00Z


async def use_plain_values(connection: Connection) -> None:
    """Makes a connection speak microseconds and bytes."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=_encode_instant,
        decoder=_decode_instant,
        format="tuple",
    )
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )


def _encode_instant(instant_us: int) -> tuple[int]:
    return (instant_us - POSTGRES_EPOCH_US,)


def _decode_instant(value: tuple[int]) -> int:
    return value[0] + POSTGRES_EPOCH_US
