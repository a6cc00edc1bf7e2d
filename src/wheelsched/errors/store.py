"""Errors of the store: the database server, the schema, statements, and missing or conflicting
rows.

Invariant: after `StoreUnavailable` a write may have happened; after any other error it has not.
"""

from typing import TYPE_CHECKING

from wheelsched.errors.base import WheelschedError

if TYPE_CHECKING:  # `import *` would export them as errors
    from collections.abc import Collection
    from uuid import UUID


class StoreError(WheelschedError):
    """the store could not complete the operation"""


class PostgresNotFound(StoreError):
    """no Postgres installation found"""


class EmbeddedServerFailure(StoreError):
    """the embedded Postgres failed to start"""


class DataDirectoryUnreachable(StoreError):
    """the account that runs Postgres cannot access the data directory"""


class DataDirectoryBusy(StoreError):
    """the data directory is in use by another process"""


class SchemaTooOld(StoreError):
    """the database schema is out of date; run `wheelsched db migrate`"""


class SchemaTooNew(StoreError):
    """the database was migrated by a newer version of wheelsched"""


class SchemaDiverged(StoreError):
    """a migration in the database differs from the one in this version of wheelsched"""


class StoreUnavailable(StoreError):
    """the database is unreachable; a write may or may not have happened, so retry it"""


class StoreTimeout(StoreUnavailable):
    """the database timed out; a write may or may not have happened, so retry it"""


class PoolExhausted(StoreTimeout):
    """timed out waiting for a free database connection"""


class NoPrimary(StoreUnavailable):
    """no host of the database URL accepts writes"""


class HintsLost(StoreUnavailable):
    """the connection no longer receives hints"""


class TransactionPooling(StoreUnavailable):
    """transaction pooling is not supported; use session mode, or connect to Postgres directly"""


class DatabaseNotFound(StoreError):
    """no such database; create it and run `wheelsched db migrate`"""


class InvalidDatabaseUrl(StoreError, ValueError):
    """invalid database URL; expected postgresql://user@host:port/name"""


class StoreContention(StoreError):
    """transaction conflict, e.g. a deadlock; nothing was written, so retry it"""


class StoreFull(StoreError):
    """the database is out of disk space"""


class RightMissing(StoreError):
    """the database denied access or a required privilege"""


class LeaseLost(StoreError):
    """the lease was lost to another shard; nothing was written"""


class DatabaseWentBack(LeaseLost):
    """the database has forgotten what it had committed; the shard starts again"""


class FenceRaised(StoreError):
    """the partition has been handed over; nothing was written"""


class KeyTaken(StoreError):
    """duplicate key; nothing was written"""


class DayMissing(StoreError):
    """the database has no runs table for this day"""


class StoreFault(StoreError):
    """the database rejected a statement; this is a bug in wheelsched"""


class InvalidSetting(StoreError, ValueError):
    """the setting is out of range"""


class JobNotFound(StoreError):
    """job not found"""


class JobNameTaken(StoreError):
    """the tenant already has an unfinished job with this name"""


class JobChanged(StoreError):
    """the job has been changed since it was read"""


class JobNotPausable(StoreError):
    """a finished job cannot be paused or resumed; give it a schedule with a future due time"""


class JobNotPlanned(StoreError):
    """the job was refused or has not been planned yet; if it has an error, delete it"""


class DatabaseRoleTaken(StoreError):
    """the database role is granted to another tenant; revoke that grant first"""


class DatabaseRoleNotFound(StoreError):
    """the tenant has no such database role"""


class QuotaExceeded(StoreError):
    """the tenant's job quota would be exceeded; none was registered"""

    def __init__(
        self, message: str | None = None, *, room: int = 0, new: "Collection[UUID]" = ()
    ) -> None:
        super().__init__(message)
        self.room = room  # how many more jobs fit
        self.new = new  # the jobs that did not fit


class TooManyRuns(StoreError):
    """the job has too many unfinished requested runs; none was added"""


class TenantNotFound(StoreError):
    """tenant not found"""


class TenantNameTaken(StoreError):
    """another tenant has this name"""


class TenantChanged(StoreError):
    """the tenant has been changed since it was read; retry the request"""


class TokenNotFound(StoreError):
    """token not found"""


class RunNotFound(StoreError):
    """run not found"""


class RunNotLive(StoreError):
    """the run has already ended"""
