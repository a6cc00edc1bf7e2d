"""The worker SDK: receives callbacks, and makes their effects happen once."""

from wheelsched.config import WorkerConfig
from wheelsched.errors import Gone, Reject, RetryLater
from wheelsched.worker.deduplication import Deduplication, MemoryOnce
from wheelsched.worker.delivery import Run
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.postgres import PostgresOnce
from wheelsched.worker.worker import Worker

__all__ = [
    "Deduplication",
    "FencingCheck",
    "Gone",
    "MemoryOnce",
    "PostgresOnce",
    "Reject",
    "RetryLater",
    "Run",
    "Worker",
    "WorkerConfig",
]
