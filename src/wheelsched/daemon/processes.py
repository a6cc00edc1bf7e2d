"""Supervises several child processes: starts, restarts and stops them together.

Invariant: no child outlives its parent, however that ends. A child that dies after it was ready is
restarted with a growing backoff; one that was never ready fails the whole, because a restart would
not help. The leases of a child that was waited for are ended at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec import Struct

from wheelsched.clock import SystemClock
from wheelsched.daemon.bootstrap import stop_on_signals
from wheelsched.daemon.certificates import Certifier
from wheelsched.daemon.child_channel import Assignment, Failed, Joining, Ready, read_reply
from wheelsched.daemon.parent import STOP_FROM_PARENT, ShardRecord
from wheelsched.errors import ProcessFailed, ProcessSlow

log = structlog.get_logger("wheelsched.daemon")

INITIAL_BACKOFF_NS: Final = 500_000_000
MAX_BACKOFF_NS: Final = 30_000_000_000
STEADY_NS: Final = 60_000_000_000  # after this long, the backoff is reset
STOP_TIMEOUT_S: Final = 45  # slightly longer than a shard takes to drain
START_TIMEOUT_S: Final = 60


class Ended(Struct, frozen=True):
    """A process that was waited for, and the ids under which it had joined the shards."""

    code: int
    shard_ids: tuple[UUID, ...]


class Child:
    """A child process and its restarts."""

    def __init__(self, name: str, assignment: Assignment) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.address = ""
        self._assignment = assignment
        self._process: Process | None = None
        self._failure: Failed | None = None

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> Ended:
        """Starts the process and waits for its end."""
        self._failure = None
        shard_ids: deque[UUID] = deque(
            maxlen=ShardRecord.MOST_IDS
        )  # of this process, not of the next one
        # In its own session, so that Ctrl-C reaches only the parent, which forwards it once.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wheelsched.daemon",
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(self._assignment) + b"\n")
        async for line in self._process.stdout:
            self._handle_line(line, shard_ids)
        return Ended(await self._process.wait(), tuple(shard_ids))

    def raise_if_never_ready(self) -> None:
        """Raises the reason if the process ended before it was ready."""
        if self._failure is not None and not self.ready.is_set():
            raise self._failure.to_error()
        if not self.ready.is_set():
            raise ProcessFailed(f"{self.name} exited before it was ready; see its log")

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _handle_line(self, line: bytes, shard_ids: deque[UUID]) -> None:
        match read_reply(line):
            case Joining(shard_id):
                shard_ids.append(shard_id)
            case Ready(address):
                self.address = address
                self.ready.set()
            case Failed() as failure:
                self._failure = failure
                log.error("process.failed", process=self.name, error=failure.reason)


class Processes:
    """The children of this process."""

    def __init__(self, children: Sequence[Child], certifier: Certifier) -> None:
        self.children = children
        self._certifier = certifier
        self._machine = SystemClock()
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Supervises the children during the block, then stops them gracefully."""
        async with self._certifier.running(), asyncio.TaskGroup() as tasks:
            supervising = [tasks.create_task(self._supervise(child)) for child in self.children]
            try:
                yield
                self._stopping.set()
                self._signal_all(STOP_FROM_PARENT)
                await asyncio.wait(supervising, timeout=STOP_TIMEOUT_S)
            finally:
                self._stopping.set()
                self._signal_all(signal.SIGKILL)
                for task in supervising:
                    task.cancel()

    async def wait_until_ready(self) -> None:
        """Returns when every child has been ready once."""
        for child in self.children:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await child.ready.wait()
            except TimeoutError as error:
                raise ProcessSlow(
                    f"{child.name} was not ready after {START_TIMEOUT_S} s; see its log"
                ) from error

    async def _supervise(self, child: Child) -> None:
        backoff_ns = INITIAL_BACKOFF_NS
        while not self._stopping.is_set():
            started_ns = self._machine.now_ns()
            ended = await child.run()
            self._certifier.certify(ended.shard_ids)
            if self._stopping.is_set():
                return
            child.raise_if_never_ready()
            if self._machine.now_ns() - started_ns > STEADY_NS:
                backoff_ns = INITIAL_BACKOFF_NS
            log.warning(
                "process.ended", process=child.name, code=ended.code, restart_in_ns=backoff_ns
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_ns / 1_000_000_000):
                    await self._stopping.wait()
            backoff_ns = min(backoff_ns * 2, MAX_BACKOFF_NS)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self.children:
            child.send_signal(number)


async def run_processes(children: Sequence[Child], certifier: Certifier) -> None:
    """Runs the children until SIGTERM or SIGINT; a second signal ends them at once."""
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    async with Processes(children, certifier).running():
        await stopping.wait()
