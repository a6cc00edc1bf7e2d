"""What a worker refuses."""

from wheelsched.errors.base import WheelschedError


class WorkerError(WheelschedError):
    """the worker could not do what was asked"""


class InvalidHandler(WorkerError, TypeError):
    """a handler takes the payload, or the payload and the run"""


class HandlerUnfinished(WorkerError, TypeError):
    """the handler returned a generator, which nobody goes through: it has not done its work"""


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
