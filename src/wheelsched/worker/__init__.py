"""The worker SDK: receives callbacks, and makes their effects happen once."""

from wheelsched.config import WorkerConfig
from wheelsched.errors import Gone, InvalidCallback, Reject, RetryLater, UnverifiedCallback
from wheelsched.worker.deduplication import Deduplication, MemoryOnce
from wheelsched.worker.delivery import Run
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.postgres import PostgresOnce
from wheelsched.worker.verification import verify, verify_batch
from wheelsched.worker.worker import Worker

__all__ = [
    "Deduplication",
    "FencingCheck",
    "Gone",
    "InvalidCallback",
    "MemoryOnce",
    "PostgresOnce",
    "Reject",
    "RetryLater",
    "Run",
    "UnverifiedCallback",
    "Worker",
    "WorkerConfig",
    "verify",
    "verify_batch",
]
