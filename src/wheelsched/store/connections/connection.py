"""The type codecs of a connection to Postgres.

Invariant: a `timestamptz` is an integer of microseconds in Python, and a `json` is its bytes,
unchanged. No other module of the store converts either.
"""

from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:  # asyncpg's classes take type arguments in their stubs only
    from asyncpg.pool import PoolConnectionProxy

    RawConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Connection: TypeAlias = RawConnection | PoolConnectionProxy[asyncpg.Record]
else:
    Connection = RawConnection = asyncpg.Connection

POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01T00:00:00Z


async def use_plain_values(connection: Connection) -> None:
    """Installs the codecs on a connection."""
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


def row_count(command_tag: str) -> int:
    """The number of rows that a command has returned, by its tag."""
    return int(command_tag.rpartition(" ")[2])


def _encode_instant(instant_us: int) -> tuple[int]:
    return (instant_us - POSTGRES_EPOCH_US,)


def _decode_instant(value: tuple[int]) -> int:
    return value[0] + POSTGRES_EPOCH_US
