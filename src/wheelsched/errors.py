"""Every exception of wheelsched. The docstring is the default message."""


class WheelschedError(Exception):
    """wheelsched could not do what was asked"""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


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
