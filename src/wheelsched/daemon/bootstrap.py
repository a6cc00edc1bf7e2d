"""Startup of every role: connect to the database, read its clock, handle signals.

Invariant: an unavailable database is retried until the process is asked to stop; a schema mismatch
or a pooler in transaction mode fails at once.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import structlog
import uvloop

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.daemon.parent import STOP_FROM_PARENT
from wheelsched.errors import (
    AddressTaken,
    DatabaseNotFound,
    InvalidDatabaseUrl,
    RightMissing,
    SchemaDiverged,
    SchemaTooNew,
    SchemaTooOld,
    StoreError,
    TransactionPooling,
)
from wheelsched.ports import LeaseStore

log = structlog.get_logger("wheelsched.daemon")

Opened = TypeVar("Opened")

FIRST_SAMPLES: Final = 5  # the one with the shortest round trip is used
RETRY_NS: Final = 1_000_000_000
PERMANENT_ERRORS: Final = (
    SchemaTooOld,
    SchemaTooNew,
    SchemaDiverged,
    RightMissing,
    DatabaseNotFound,
    InvalidDatabaseUrl,
    TransactionPooling,
)


def run_role(role: Coroutine[Any, Any, None]) -> None:
    """Runs a role to its end, on uvloop."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(role)
    finally:  # the parent may forward a signal while this process exits without its handlers
        signal.signal(STOP_FROM_PARENT, signal.SIG_IGN)


async def open_clock(machine: SystemClock, leases: LeaseStore) -> DatabaseClock:
    """The database clock, from a few initial samples."""
    samples = [await leases.read_clock(machine.now_ns) for _ in range(FIRST_SAMPLES)]
    return DatabaseClock(machine, min(samples, key=lambda one: one.received_ns - one.sent_ns))


async def retry_until_available(
    machine: SystemClock,
    open_resource: Callable[[], Awaitable[Opened]],
    stopping: asyncio.Event | None,
) -> Opened:
    """Opens a resource, and retries while the database is unavailable."""
    while True:
        try:
            return await open_resource()
        except PERMANENT_ERRORS:
            raise
        except StoreError as error:
            if stopping is not None and stopping.is_set():
                raise
            log.warning("database.awaited", error=str(error))
        await machine.sleep(RETRY_NS)


def stop_on_signals(stopping: asyncio.Event) -> None:
    """Sets `stopping` on SIGTERM or SIGINT; the second signal ends the process at once.

    A service manager may signal a parent and its children together, and the parent forwards its
    signal. That is one request, so the parent's signals are counted apart from the others.
    """
    counted: set[bool] = set()

    def handle(number: int) -> None:
        is_forwarded = number == STOP_FROM_PARENT
        if is_forwarded in counted:
            os._exit(128 + number)
        counted.add(is_forwarded)
        if not stopping.is_set():
            log.info("process.stopping", signal=signal.Signals(number).name)
            stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT, STOP_FROM_PARENT):
        asyncio.get_running_loop().add_signal_handler(number, handle, number)


def raise_file_limit() -> None:
    """Raises the limit of open files, and so of connections, as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has a lower limit than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def address_taken(host: str, port: int, error: OSError) -> AddressTaken:
    """The error for a socket that could not be opened."""
    reason = error.strerror or str(error)
    return AddressTaken(f"cannot listen on {host}:{port}: {reason}; choose another address")
