"""Translates exceptions of asyncpg into the errors of the store.

Invariant: no exception of asyncpg leaves the store. After a `StoreUnavailable` a write may have
happened; after any other error it has not.
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
    TransactionPooling,
)

log = structlog.get_logger("wheelsched.store")

# By SQLSTATE or its prefix: https://www.postgresql.org/docs/current/errcodes-appendix.html
ERRORS: dict[str, type[StoreError]] = {
    "08": StoreUnavailable,
    "23505": KeyTaken,
    "25006": StoreUnavailable,  # read-only transaction: the server is a standby
    "25P03": StoreTimeout,  # idle in a transaction for too long
    "26000": TransactionPooling,  # the prepared statement is in another server process
    "28": RightMissing,
    "3D000": DatabaseNotFound,
    "40": StoreContention,
    "42501": RightMissing,
    "42P01": SchemaTooOld,
    "42P05": TransactionPooling,  # another client has prepared a statement of that name
    "42703": SchemaTooOld,
    "42883": SchemaTooOld,
    "53": StoreUnavailable,  # out of memory or connections
    "53100": StoreFull,
    "55000": StoreUnavailable,  # the database accepts no connections, e.g. during a restore
    "55P03": StoreContention,  # lock_timeout
    "57014": StoreTimeout,  # statement_timeout
    "57P": StoreUnavailable,  # shutting down, starting up, crashed
    "58": StoreUnavailable,  # the operating system of the server failed
}


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises errors of the database as errors of the store, and logs them."""
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
        return DayMissing  # a violated check has a name; a row without a partition has none
    for length in (5, 3, 2):
        if sqlstate[:length] in ERRORS:
            return ERRORS[sqlstate[:length]]
    return StoreFault
