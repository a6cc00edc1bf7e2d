"""The worker SDK: receives callbacks, and makes each run take effect once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wheelsched.config import WorkerConfig
from wheelsched.errors import Gone, InvalidCallback, Reject, RetryLater, UnverifiedCallback
from wheelsched.extras import require
from wheelsched.worker.deduplication import Deduplication, MemoryOnce
from wheelsched.worker.delivery import Run
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.verification import verify, verify_batch
from wheelsched.worker.worker import Worker

if TYPE_CHECKING:
    from wheelsched.worker.postgres import PostgresOnce

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


def __getattr__(name: str) -> Any:
    """Imports `PostgresOnce` on first use: a worker without it needs no database driver."""
    if name != "PostgresOnce":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("wheelsched.worker.postgres").PostgresOnce
    except ModuleNotFoundError:
        require("server")
        raise
