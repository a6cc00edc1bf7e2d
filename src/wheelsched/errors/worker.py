"""Errors of the worker SDK."""

from wheelsched.errors.base import WheelschedError


class WorkerError(WheelschedError):
    """the worker could not complete the operation"""


class InvalidHandler(WorkerError, TypeError):
    """a handler takes the payload, or the payload and the run"""


class WorkerNotFound(WorkerError, LookupError):
    """no such worker; expected MODULE:WORKER, e.g. app.jobs:worker"""


class HandlerUnfinished(WorkerError, TypeError):
    """the handler returned a generator, so its body did not run"""


class HandlerTaken(WorkerError, ValueError):
    """the worker already has a handler for this job"""


class UnverifiedCallback(WorkerError):
    """the request is not verified as a callback from wheelsched"""


class SignatureMissing(UnverifiedCallback):
    """missing webhook-id, webhook-timestamp or webhook-signature header"""


class SignatureMismatch(UnverifiedCallback):
    """the signature matches none of the worker's secrets"""


class SignatureExpired(UnverifiedCallback):
    """the signature's timestamp is too old or in the future; compare the clocks"""


class InvalidCallback(WorkerError, ValueError):
    """the request is signed, but not a valid callback"""


class InvalidPayload(WorkerError, ValueError):
    """the payload does not match what the handler expects"""


class RunInProgress(WorkerError):
    """another attempt with this idempotency key is still in progress"""


class AttemptOvertaken(WorkerError):
    """a newer attempt of this run exists; the fencing token is stale"""


class TransactionMissing(WorkerError):
    """a run has a connection only with Worker(deduplicate=PostgresOnce(pool))"""


class StreamEnded(WorkerError):
    """the stream to the API has ended"""


class AcceptanceImpossible(WorkerError):
    """this run cannot be accepted for later completion; it must end within its request"""
