"""What the store cannot do: the server, the schema, a statement, or what its rows say of a request.

Invariant: after a `StoreUnavailable` a write may have happened; after any other it has not.
"""

from typing import TYPE_CHECKING

from wheelsched.errors.base import WheelschedError

if TYPE_CHECKING:  # what is imported here would be exported as an error
    from collections.abc import Collection
    from uuid import UUID


class StoreError(WheelschedError):
    """the store could not do what was asked"""


class PostgresNotFound(StoreError):
    """no Postgres was found to run"""


class EmbeddedServerFailure(StoreError):
    """the embedded Postgres did not start"""


class DataDirectoryUnreachable(StoreError):
    """the account that runs Postgres cannot reach its data directory"""


class DataDirectoryBusy(StoreError):
    """another process holds this data directory and does not share it"""


class SchemaTooOld(StoreError):
    """the database lacks migrations: run `wheelsched db migrate`"""


class SchemaTooNew(StoreError):
    """the database was migrated by a newer program"""


class SchemaDiverged(StoreError):
    """a migration of the database is not the one that this program knows"""


class StoreUnavailable(StoreError):
    """the database cannot be reached; a write may have happened or not: send it again"""


class StoreTimeout(StoreUnavailable):
    """the database did not answer in time; a write may have happened or not: send it again"""


class PoolExhausted(StoreTimeout):
    """every connection to the database is in use, and none became free in time"""


class DatabaseNotFound(StoreError):
    """the server has no database of that name: make it, and run `wheelsched db migrate`"""


class InvalidDatabaseUrl(StoreError, ValueError):
    """this is not the address of a database: write postgresql://user@host:port/name"""


class StoreContention(StoreError):
    """the database gave up one of two statements that waited for each other: send it again"""


class StoreFull(StoreError):
    """the database has no room left on its disk"""


class RightMissing(StoreError):
    """the database refused the account, or a right that it lacks"""


class LeaseLost(StoreError):
    """the lease is gone: another shard took it over, and nothing was written"""


class FenceRaised(StoreError):
    """the shard handed a partition over since this was sent, and nothing was written"""


class KeyTaken(StoreError):
    """the database has a row with this key already, and nothing was written"""


class DayMissing(StoreError):
    """the database has no table for the runs of that day"""


class StoreFault(StoreError):
    """the database refused a statement that it should not: a fault of this program"""


class InvalidSetting(StoreError, ValueError):
    """a setting is out of bounds"""


class JobNotFound(StoreError):
    """there is no such job"""


class JobNameTaken(StoreError):
    """another job of the tenant that is not finished has this name"""


class JobChanged(StoreError):
    """the job was changed by somebody else since it was read"""


class JobNotPausable(StoreError):
    """a finished job cannot be paused or resumed: give it a schedule with a future"""


class JobNotPlanned(StoreError):
    """the job was refused, or no shard has planned it yet: if it has an error, delete it"""


class DatabaseRoleTaken(StoreError):
    """the database role speaks for another tenant: revoke that first"""


class DatabaseRoleNotFound(StoreError):
    """the tenant has no such database role"""


class QuotaExceeded(StoreError):
    """the tenant would have more jobs than its quota allows: none was registered"""

    def __init__(
        self, message: str | None = None, *, room: int = 0, new: "Collection[UUID]" = ()
    ) -> None:
        super().__init__(message)
        self.room = room  # for so many jobs
        self.new = new  # the jobs that were too many


class TooManyRuns(StoreError):
    """too many runs of the job were asked for and are not finished: none was added"""


class TenantNotFound(StoreError):
    """there is no such tenant"""


class TenantNameTaken(StoreError):
    """another tenant has this name"""


class TenantChanged(StoreError):
    """the tenant was changed by somebody else since it was read: send it again"""


class TokenNotFound(StoreError):
    """there is no such token"""


class RunNotFound(StoreError):
    """there is no such run"""


class RunNotLive(StoreError):
    """the run has ended"""
