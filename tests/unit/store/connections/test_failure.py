import asyncpg
import pytest
from structlog.testing import capture_logs

from wheelsched import errors
from wheelsched.store.connections.failure import translated_errors


def raised(error: Exception) -> BaseException:
    with pytest.raises(errors.StoreError) as caught, translated_errors():
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (asyncpg.ConnectionDoesNotExistError("gone"), errors.StoreUnavailable),
        (asyncpg.CannotConnectNowError("starting"), errors.StoreUnavailable),
        (asyncpg.AdminShutdownError("stopping"), errors.StoreUnavailable),
        (asyncpg.TooManyConnectionsError("full"), errors.StoreUnavailable),
        (asyncpg.ReadOnlySQLTransactionError("standby"), errors.StoreUnavailable),
        (asyncpg.ObjectNotInPrerequisiteStateError("closed"), errors.StoreUnavailable),
        (asyncpg.PostgresIOError("disk"), errors.StoreUnavailable),
        (asyncpg.InterfaceError("pool is closed"), errors.StoreUnavailable),
        (ConnectionRefusedError("nobody"), errors.StoreUnavailable),
        (TimeoutError(), errors.StoreTimeout),
        (asyncpg.QueryCanceledError("statement timeout"), errors.StoreTimeout),
        (asyncpg.DeadlockDetectedError("deadlock"), errors.StoreContention),
        (asyncpg.SerializationError("again"), errors.StoreContention),
        (asyncpg.LockNotAvailableError("lock"), errors.StoreContention),
        (asyncpg.DiskFullError("no space"), errors.StoreFull),
        (asyncpg.InsufficientPrivilegeError("no"), errors.RightMissing),
        (asyncpg.InvalidPasswordError("no"), errors.RightMissing),
        (asyncpg.UndefinedTableError("runs"), errors.SchemaTooOld),
        (asyncpg.CheckViolationError("no partition"), errors.DayMissing),
        (asyncpg.InvalidCatalogNameError("no database"), errors.DatabaseNotFound),
        (asyncpg.ClientConfigurationError("invalid DSN"), errors.InvalidDatabaseUrl),
        (asyncpg.UniqueViolationError("twice"), errors.KeyTaken),
        (asyncpg.DivisionByZeroError("bug"), errors.StoreFault),
    ],
)
def test_every_failure_has_a_name(error: Exception, name: type[errors.StoreError]) -> None:
    assert type(raised(error)) is name


def test_a_failed_check_is_not_a_missing_day() -> None:
    error = asyncpg.CheckViolationError("partition")
    error.constraint_name = "partitions_partition_check"
    assert type(raised(error)) is errors.StoreFault


def test_the_message_says_what_it_means_and_what_the_database_said() -> None:
    message = str(raised(asyncpg.DiskFullError("could not extend file")))
    assert message == "the database is out of disk space (could not extend file)"


def test_every_failure_has_a_line_in_the_log() -> None:
    with capture_logs() as logs:
        raised(asyncpg.DiskFullError("could not extend file"))
    assert [(line["event"], line["error"], line["sqlstate"]) for line in logs] == [
        ("store.failed", "StoreFull", "53100")
    ]


def test_what_is_ours_passes() -> None:
    with pytest.raises(errors.JobNotFound), translated_errors():
        raise errors.JobNotFound
