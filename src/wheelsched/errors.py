"""Every exception of wheelsched. The docstring is the default message."""


class WheelschedError(Exception):
    """wheelsched could not do what was asked"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


def quoted(text: str) -> str:
    """What was written, in quotes; cut, because an error is not the place for a megabyte."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


class WheelError(WheelschedError):
    """the timing wheel could not do what was asked"""


class DeadlineOutOfRange(WheelError, ValueError):
    """a deadline must lie between 0 and the wheel's max_deadline_ns"""


class ForeignHandle(WheelError, ValueError):
    """this handle was never issued by this wheel"""


class WheelBusy(WheelError, RuntimeError):
    """the wheel is in the middle of another operation: it was entered again, or by two threads"""


class WheelClosed(WheelError, RuntimeError):
    """the wheel is closed"""


class WheelCorrupt(WheelError, AssertionError):
    """an invariant of the wheel does not hold"""


class WrongLoop(WheelError, RuntimeError):
    """an AsyncWheel is used on the loop that made it, while that runs; from another thread, \
pass the call to loop.call_soon_threadsafe"""


# What a user wrote and the core refuses.


class InvalidField(WheelschedError, ValueError):
    """a field does not hold what it should"""

    def __init__(self, message: str | None = None, *, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer  # RFC 6901, into the document that was written


class InvalidDocument(WheelschedError, ValueError):
    """a document has fields that do not hold what they should"""

    def __init__(
        self, message: str | None = None, *, errors: tuple[InvalidField, ...] = ()
    ) -> None:
        self.errors = errors
        details = "; ".join(f"{error.pointer}: {error}" for error in self.errors)
        super().__init__(message or details)


class WrongType(InvalidField):
    """a field holds a value of another type"""


class FieldOutOfRange(InvalidField):
    """a field holds a value that is too small or too large"""


class UnknownChoice(InvalidField):
    """a field holds none of the words that it may"""


class UnknownField(InvalidField):
    """there is no such field"""


class InvalidDuration(InvalidField):
    """a duration is written as whole numbers with units, such as '90s' or '1h30m'"""


class InvalidIdempotencyKey(InvalidField):
    """an idempotency key is text with placeholders such as {{job_id}} and {{scheduled_at_unix}}"""


class BackfillTooLarge(InvalidField):
    """a backfill has more due times than one request may ask for"""


class InvalidRunId(WheelschedError, ValueError):
    """a run id is the job id in 32 hex digits, '-', and the due time in microseconds"""


# Schedules that cannot be what their user meant.


class ScheduleError(InvalidField):
    """the schedule cannot be used"""


class ScheduleMissing(ScheduleError):
    """a schedule has exactly one of cron, at, every and rrule"""


class ScheduleTooLong(ScheduleError):
    """a schedule expression has at most 255 characters"""


class InvalidCron(ScheduleError):
    """a cron expression has five fields, or six with the seconds first"""


class InvalidInstant(ScheduleError):
    """a time is written as in ISO 8601, such as 2026-03-08T09:30:00 or 2026-03-08T09:30:00Z"""


class InvalidInterval(ScheduleError):
    """an interval is a duration of at least one second, such as '5m' or '1h30m'"""


class InvalidRecurrence(ScheduleError):
    """a recurrence is written as in RFC 5545, such as RRULE:FREQ=DAILY;BYHOUR=9"""


class InvalidExclusion(ScheduleError):
    """an excluded date is written 2026-12-25, a range of dates 2026-12-24/2027-01-02"""


class ScheduleNeverFires(ScheduleError):
    """the schedule is never due"""


class ScheduleInPast(ScheduleError):
    """the only due time of the schedule has passed"""


class EndBeforeStart(ScheduleError):
    """the schedule ends before it starts"""


class JitterTooLong(ScheduleError):
    """the jitter is longer than the shortest time between two runs"""


class UnknownTimezone(ScheduleError):
    """a time zone is named as in the IANA database, such as Europe/London"""


class InvalidDst(ScheduleError):
    """dst.gap is shift or skip, dst.overlap is first, last or both"""


# What the core finds impossible.


class IllegalMove(WheelschedError):
    """an event came to a state that it cannot move"""

    def __init__(
        self, message: str | None = None, *, state: str | None = None, event: str = ""
    ) -> None:
        super().__init__(message)
        self.state = state
        self.event = event


class InvalidAttempt(WheelschedError, ValueError):
    """attempts are counted from 1: an outcome belongs to one that was made"""


class InvalidLeaseTerms(WheelschedError, ValueError):
    """the margin of a lease must be longer than nothing and shorter than its TTL"""


class TokenOutOfRange(WheelschedError, ValueError):
    """a fencing token is a bigint that is not negative"""


class EpochOutOfRange(WheelschedError, ValueError):
    """an epoch counts from 1 and fits 31 bits"""


class TokenCounterExhausted(WheelschedError):
    """this epoch has no tokens left: the partition needs a new one"""


# What the store cannot do.


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


class StoreContention(StoreError):
    """the database gave up one of two statements that waited for each other: send it again"""


class StoreFull(StoreError):
    """the database has no room left on its disk"""


class RightMissing(StoreError):
    """the database account lacks a right: grant it the role wheelsched_shard or wheelsched_api"""


class LeaseLost(StoreError):
    """the lease is gone: another shard took it over, and nothing was written"""


class FenceRaised(StoreError):
    """the shard handed a partition over since this was sent, and nothing was written"""


class DayMissing(StoreError):
    """the database has no table for the runs of that day"""


class StoreFault(StoreError):
    """the database refused a statement that it should not: a fault of this program"""


class JobNotFound(StoreError):
    """there is no such job"""


class JobNameTaken(StoreError):
    """another job of the tenant has this name"""


class JobChanged(StoreError):
    """the job was changed by somebody else since it was read"""


class JobNotPausable(StoreError):
    """a finished job cannot be paused or resumed: give it a schedule with a future"""


class RunNotFound(StoreError):
    """there is no such run"""


class RunNotLive(StoreError):
    """the run has ended"""
