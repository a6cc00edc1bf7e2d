"""Exit codes and advice for errors.

Invariant: the exit code alone tells a script what kind of failure it was; the message on stderr
tells people what was wrong and what would be right.
"""

from enum import IntEnum
from typing import Final

from wheelsched import errors
from wheelsched.errors import WheelschedError


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    NOT_ALLOWED = 5
    UNAVAILABLE = 6


# The first match wins; all other errors exit with FAILED.
CODES: Final[tuple[tuple[type[WheelschedError], ExitCode], ...]] = (
    (errors.NotFound, ExitCode.NOT_FOUND),
    (errors.JobNotFound, ExitCode.NOT_FOUND),
    (errors.TenantNotFound, ExitCode.NOT_FOUND),
    (errors.TokenNotFound, ExitCode.NOT_FOUND),
    (errors.DatabaseRoleNotFound, ExitCode.NOT_FOUND),
    (errors.WorkerNotFound, ExitCode.USAGE),
    (errors.Conflict, ExitCode.CONFLICT),
    (errors.TenantNameTaken, ExitCode.CONFLICT),
    (errors.DatabaseRoleTaken, ExitCode.CONFLICT),
    (errors.NotAuthenticated, ExitCode.NOT_ALLOWED),
    (errors.NotAllowed, ExitCode.NOT_ALLOWED),
    (errors.RightMissing, ExitCode.NOT_ALLOWED),
    (errors.ApiUnavailable, ExitCode.UNAVAILABLE),
    (errors.TooManyRequests, ExitCode.UNAVAILABLE),
    (errors.StoreUnavailable, ExitCode.UNAVAILABLE),
    (errors.StoreContention, ExitCode.UNAVAILABLE),
    (errors.InvalidRequest, ExitCode.USAGE),
    (errors.InvalidApiUrl, ExitCode.USAGE),
    (errors.InvalidApiToken, ExitCode.USAGE),
    (errors.InvalidField, ExitCode.USAGE),
    (errors.InvalidDocument, ExitCode.USAGE),
    (errors.InvalidNetwork, ExitCode.USAGE),
    (errors.InvalidSetting, ExitCode.USAGE),
)

ADVICE: Final[tuple[tuple[type[WheelschedError], str], ...]] = (
    (
        errors.ApiUnavailable,
        "start one with `wheelsched up`, or set --url or WHEELSCHED_URL",
    ),
    (errors.NotAuthenticated, "pass a token with --token or WHEELSCHED_TOKEN"),
    (errors.PostgresNotFound, 'install one with `pip install "wheelsched[embedded]"`'),
    (errors.StoreUnavailable, "check --database-url or WHEELSCHED_DATABASE_URL"),
)


def code_of(error: WheelschedError) -> ExitCode:
    """The exit code for an error."""
    return next((code for kind, code in CODES if isinstance(error, kind)), ExitCode.FAILED)


def advice_for(error: WheelschedError) -> str | None:
    """What to do about an error whose message does not say."""
    return next((advice for kind, advice in ADVICE if isinstance(error, kind)), None)
