"""What every role does when it begins: find the database, learn its time, heed signals.

Invariant: a database that is away is waited for, as long as nobody asks the process to stop; a
schema that is not the program's is not.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog
import uvloop

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.errors import (
    AddressTaken,
    DatabaseNotFound,
    InvalidDatabaseUrl,
    RightMissing,
    SchemaDiverged,
    SchemaTooNew,
    SchemaTooOld,
    StoreError,
)
from wheelsched.ports import LeaseStore

log = structlog.get_logger("wheelsched.daemon")

Opened = TypeVar("Opened")

FIRST_SAMPLES: Final = 5  # the one with the shortest round trip counts
RETRY_NS: Final = 1_000_000_000
NO_USE_WAITING: Final = (
    SchemaTooOld,
    SchemaTooNew,
    SchemaDiverged,
    RightMissing,
    DatabaseNotFound,
    InvalidDatabaseUrl,
)


def run_role(role: Coroutine[Any, Any, None]) -> None:
    """Runs a role to its end, on the quickest loop there is."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(role)


async def open_clock(machine: SystemClock, leases: LeaseStore) -> DatabaseClock:
    """The database's clock, after a few looks at it."""
    samples = [await leases.read_clock(machine.now_ns) for _ in range(FIRST_SAMPLES)]
    return DatabaseClock(machine, min(samples, key=lambda one: one.received_ns - one.sent_ns))


async def awaited(
    machine: SystemClock,
    open_it: Callable[[], Awaitable[Opened]],
    stopping: asyncio.Event | None,
) -> Opened:
    """What can be opened only when the database is there."""
    while True:
        try:
            return await open_it()
        except NO_USE_WAITING:
            raise
        except StoreError as error:
            if stopping is not None and stopping.is_set():
                raise
            log.warning("database.awaited", error=str(error))
        await machine.sleep(RETRY_NS)


def heed_signals(stopping: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask the process to stop; the second one ends it at once."""

    def heed(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        log.info("process.stopping", signal=signal.Signals(number).name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, heed, number)


def address_taken(host: str, port: int, error: OSError) -> AddressTaken:
    """The reason why a socket could not be opened, as a user can act on it."""
    reason = error.strerror or str(error)
    return AddressTaken(f"cannot listen on {host}:{port}: {reason}; choose another address")
