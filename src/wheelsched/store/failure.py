"""Under every stage: failures of the database, by the names that the rest of the program knows.

Invariant: no exception of asyncpg leaves the store. What may have been written in spite of the
error is a `StoreUnavailable`; what certainly was not is something else.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import structlog

from wheelsched.errors import (
    DatabaseNotFound,
    DayMissing,
    InvalidDatabaseUrl,
    KeyTaken,
    RightMissing,
    SchemaTooOld,
    StoreContention,
    StoreError,
    StoreFault,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)

log = structlog.get_logger("wheelsched.store")

# By SQLSTATE, or by its class: https://www.postgresql.org/docs/current/errcodes-appendix.html
NAMES: dict[str, type[StoreError]] = {
    "08": StoreUnavailable,
    "23505": KeyTaken,
    "25006": StoreUnavailable,  # read-only: we talk to a standby
    "25P03": StoreTimeout,  # idle in a transaction for too long
    "28": RightMissing,
    "3D000": DatabaseNotFound,
    "40": StoreContention,
    "42501": RightMissing,
    "42P01": SchemaTooOld,
    "42703": SchemaTooOld,
    "42883": SchemaTooOld,
    "53": StoreUnavailable,  # out of memory, or of connections
    "53100": StoreFull,
    "55P03": StoreContention,  # lock_timeout
    "57014": StoreTimeout,  # statement_timeout
    "57P": StoreUnavailable,  # shutting down, starting up, crashed
    "58": StoreUnavailable,  # the system under the database failed
}


@contextmanager
def named_failures() -> Iterator[None]:
    """Gives the failures inside their names, and logs them."""
    try:
        yield
    except asyncpg.PostgresError as error:
        kind = _kind(error)
        log.warning("store.failed", error=kind.__name__, sqlstate=error.sqlstate, detail=str(error))
        raise kind(f"{kind.__doc__} ({error})") from error
    except asyncpg.ClientConfigurationError as error:
        raise InvalidDatabaseUrl(f"{InvalidDatabaseUrl.__doc__} ({error})") from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError) as error:
        kind = StoreTimeout if isinstance(error, TimeoutError) else StoreUnavailable
        log.warning("store.failed", error=kind.__name__, detail=str(error))
        raise kind(f"{kind.__doc__} ({type(error).__name__}: {error})") from error
    except asyncio.IncompleteReadError as error:
        log.warning("store.failed", error="StoreUnavailable", detail=str(error))
        raise StoreUnavailable from error


def _kind(error: asyncpg.PostgresError) -> type[StoreError]:
    sqlstate = error.sqlstate or ""
    if sqlstate == "23514" and error.constraint_name is None:
        return DayMissing  # no table for the row, where a check would have a name
    for length in (5, 3, 2):
        if sqlstate[:length] in NAMES:
            return NAMES[sqlstate[:length]]
    return StoreFault
