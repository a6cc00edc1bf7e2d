"""Every exception of wheelsched. The docstring is the default message."""


class WheelschedError(Exception):
    """wheelsched could not do what was asked"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


def quoted(text: str) -> str:
    """What was written, in quotes; cut, because an error is not the place for a megabyte."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def first_of(error: BaseException) -> WheelschedError | None:
    """The first error of ours in what a group of tasks raised, however deep it is."""
    if isinstance(error, BaseExceptionGroup):
        found = (first_of(each) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, WheelschedError) else None


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


class InvalidName(InvalidField):
    """a name is text that can be shown: no control characters, and no more than it may have"""


class PayloadTooLarge(InvalidField):
    """a payload has at most 262,144 bytes"""


class InvalidJson(InvalidField):
    """this is not JSON that every reader understands alike"""


class InvalidParameter(InvalidField):
    """a parameter of the address does not hold what it should"""


class InvalidCursor(InvalidParameter):
    """this cursor is not one that this list gave out: begin again without one"""


class InvalidUrl(InvalidField):
    """a target's URL is absolute, such as https://example.org/hooks/report"""


class TargetForbidden(InvalidField):
    """the target is at an address or a port that callbacks may not go to"""


class InvalidHeader(InvalidField):
    """a header of a target has a name of its own and a value of printable ASCII"""


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


# What a dispatcher cannot do.


class InvalidNetwork(WheelschedError, ValueError):
    """a network is written in CIDR notation, such as 10.20.0.0/16"""


class InvalidSecret(WheelschedError, ValueError):
    """a secret is whsec_ and 24 to 64 bytes in base64"""


class AddressForbidden(WheelschedError, OSError):
    """callbacks may not go to this address"""


# What a process cannot do.


class ProcessError(WheelschedError):
    """a process could not do its part"""


class AddressTaken(ProcessError):
    """the address to listen on is taken, or not this machine's"""


class ProcessFailed(ProcessError):
    """a process ended before it was ready; its log says why"""


class ProcessSlow(ProcessError):
    """a process was not ready in time; its log says why"""


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


class DatabaseNotFound(StoreError):
    """the server has no database of that name: make it, and run `wheelsched db migrate`"""


class InvalidDatabaseUrl(StoreError, ValueError):
    """this is not the address of a database: write postgresql://user@host:port/name"""


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


class KeyTaken(StoreError):
    """the database has a row with this key already, and nothing was written"""


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


class JobNotPlanned(StoreError):
    """the job was refused, or no shard has planned it yet: if it has an error, delete it"""


class DatabaseRoleTaken(StoreError):
    """the database role speaks for another tenant: revoke that first"""


class DatabaseRoleNotFound(StoreError):
    """the tenant has no such database role"""


class QuotaExceeded(StoreError):
    """the tenant would have more jobs than its quota allows: none was registered"""


class TenantNotFound(StoreError):
    """there is no such tenant"""


class TenantNameTaken(StoreError):
    """another tenant has this name"""


class TokenNotFound(StoreError):
    """there is no such token"""


class RunNotFound(StoreError):
    """there is no such run"""


class RunNotLive(StoreError):
    """the run has ended"""


# What the API refuses.


class RequestRefused(WheelschedError):
    """the request cannot be answered"""


class TokenMissing(RequestRefused):
    """say who you are: Authorization: Bearer, and a token"""


class TokenUnknown(RequestRefused):
    """this token is unknown, or was revoked"""


class ScopeMissing(RequestRefused):
    """the token does not have the scope that this needs"""


class OriginForeign(RequestRefused):
    """without a token only programs of this machine are answered, and no page of a browser"""


class RateExceeded(RequestRefused):
    """the tenant asks more often than its quota allows"""

    def __init__(self, message: str | None = None, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BodyTooLarge(RequestRefused):
    """the body of the request is larger than this call reads"""


class HeadersTooLarge(RequestRefused):
    """the headers of the request are larger than the API reads"""


class ContentTypeUnknown(RequestRefused):
    """this call does not read a body of this content type"""


class VersionMismatch(RequestRefused):
    """the job has another version than If-Match asks for"""


class RequestKeyInvalid(RequestRefused):
    """an Idempotency-Key has 1 to 255 printable ASCII characters"""


class RequestKeyReused(RequestRefused):
    """this Idempotency-Key came before with another request"""


class RequestKeyBusy(RequestRefused):
    """the request with this Idempotency-Key is being answered: ask again in a moment"""


class TokenStale(RequestRefused):
    """this token is stale: the run has ended, or another attempt was made since"""


class RunKeyTaken(RequestRefused):
    """another request came in the same microsecond: send it again"""


# What a handler says of its run by raising it.


class Verdict(WheelschedError):
    """a handler ended its attempt"""


class Reject(Verdict):
    """the worker will never do this run"""


class RetryLater(Verdict):
    """the worker asks for another attempt later"""

    def __init__(self, after_s: float = 1, message: str | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Gone(Verdict):
    """the worker wants no more runs of this job"""


# What a worker refuses.


class WorkerError(WheelschedError):
    """the worker could not do what was asked"""


class InvalidHandler(WorkerError, TypeError):
    """a handler takes the payload, or the payload and the run"""


class HandlerTaken(WorkerError, ValueError):
    """the worker has a handler for this job already"""


class UnverifiedCallback(WorkerError):
    """the request does not prove that it comes from wheelsched"""


class SignatureMissing(UnverifiedCallback):
    """the request carries no webhook-id, webhook-timestamp and webhook-signature"""


class SignatureMismatch(UnverifiedCallback):
    """the signature was made with none of the worker's secrets"""


class SignatureExpired(UnverifiedCallback):
    """the request was signed too long ago or in the future: compare the clocks"""


class InvalidCallback(WorkerError, ValueError):
    """the request is signed, and no callback of wheelsched"""


class InvalidPayload(WorkerError, ValueError):
    """the payload is not what the handler takes"""


class RunInProgress(WorkerError):
    """another attempt with this idempotency key has not ended yet"""


class AttemptOvertaken(WorkerError):
    """a later attempt of this run was seen: the token of this one is stale"""


class TransactionMissing(WorkerError):
    """only Worker(deduplicate=PostgresOnce(pool)) gives a run a connection"""


class AcceptanceImpossible(WorkerError):
    """this run cannot be accepted: it has to end within its request"""


# What the API answers to its client.


class ApiError(WheelschedError):
    """the API did not do what was asked"""

    def __init__(
        self,
        message: str | None = None,
        *,
        status: int | None = None,
        kind: str = "about:blank",
        errors: tuple[InvalidField, ...] = (),
    ) -> None:
        details = "".join(f"; {error.pointer}: {error}" for error in errors)
        super().__init__((message or type(self).__doc__ or "") + details)
        self.status = status  # None: there was no answer
        self.kind = kind  # the type of the problem
        self.errors = errors  # what is wrong with the fields of the request, and where


class InvalidRequest(ApiError):
    """the API cannot use the request as it is"""


class NotAuthenticated(ApiError):
    """the API knows no such token: set WHEELSCHED_TOKEN"""


class NotAllowed(ApiError):
    """the token does not allow this"""


class NotFound(ApiError):
    """there is no such thing, or it belongs to another tenant"""


class Conflict(ApiError):
    """what was asked for does not go together with what is there"""


class NameTaken(Conflict):
    """the tenant has a job of this name already"""


class StaleToken(Conflict):
    """the run has a later attempt, or has ended"""


class EditedMeanwhile(Conflict):
    """the job was edited by somebody else since it was read"""


class QuotaUsedUp(NotAllowed):
    """the tenant has as many jobs as it may have"""


class TooManyRequests(ApiError):
    """the tenant asks more often than it may"""


class ApiUnavailable(ApiError):
    """the API could not be reached, or could not answer"""


class InvalidApiUrl(ApiError, ValueError):
    """the API is reached by an address such as http://127.0.0.1:8420"""


class InvalidAnswer(ApiError):
    """the answer is not one of this API"""
