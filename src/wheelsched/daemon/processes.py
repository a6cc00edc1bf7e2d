"""Several processes as one: started together, kept alive, stopped together.

Invariant: none of them outlives the process that started it, however that ended. One that dies
after it had been ready is started again, after a pause that grows; one that was never ready ends
the whole, since the next one would fare no better.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog

from wheelsched.clock import SystemClock
from wheelsched.daemon.line import Assignment, Failed, Ready, Reply
from wheelsched.daemon.opening import heed_signals
from wheelsched.errors import ProcessFailed, ProcessSlow

log = structlog.get_logger("wheelsched.daemon")

FIRST_PAUSE_NS: Final = 500_000_000
LONGEST_PAUSE_NS: Final = 30_000_000_000
STEADY_NS: Final = 60_000_000_000  # who ran as long has earned a short pause again
STOP_TIMEOUT_S: Final = 45  # a little longer than a shard may take to drain
START_TIMEOUT_S: Final = 60


class Child:
    """A process at the other end of a line, and the ones that come after it."""

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

    async def live(self) -> int:
        """One life, from its start to its end; gives its exit code."""
        self._failure = None
        # A session of its own: Ctrl-C on a terminal is for the parent, who passes it on once.
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
            self._heed(line)
        return await self._process.wait()

    def refuse_early_end(self) -> None:
        """Raises why it ended, if it was never ready."""
        if self._failure is not None and not self.ready.is_set():
            raise self._failure.to_error()
        if not self.ready.is_set():
            raise ProcessFailed(f"{self.name} ended before it was ready; its log says why")

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _heed(self, line: bytes) -> None:
        try:
            reply = msgspec.json.decode(line, type=Reply)
        except msgspec.DecodeError:
            return  # of a library that prints
        match reply:
            case Ready(address):
                self.address = address
                self.ready.set()
            case Failed() as failure:
                self._failure = failure
                log.error("process.failed", process=self.name, error=failure.reason)


class Processes:
    """The children of this process; `running` starts them and stops them."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = children
        self._machine = SystemClock()
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the children alive meanwhile, and then stops them in good order."""
        async with asyncio.TaskGroup() as tasks:
            keeping = [tasks.create_task(self._keep(child)) for child in self.children]
            try:
                yield
                self._stopping.set()
                self._signal_all(signal.SIGTERM)
                await asyncio.wait(keeping, timeout=STOP_TIMEOUT_S)
            finally:
                self._stopping.set()
                self._signal_all(signal.SIGKILL)
                for task in keeping:
                    task.cancel()

    async def are_ready(self) -> None:
        """Returns when every child has been ready once."""
        for child in self.children:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await child.ready.wait()
            except TimeoutError as error:
                raise ProcessSlow(
                    f"{child.name} was not ready after {START_TIMEOUT_S} s; its log says why"
                ) from error

    async def _keep(self, child: Child) -> None:
        pause_ns = FIRST_PAUSE_NS
        while not self._stopping.is_set():
            started_ns = self._machine.now_ns()
            code = await child.live()
            if self._stopping.is_set():
                return
            child.refuse_early_end()
            if self._machine.now_ns() - started_ns > STEADY_NS:
                pause_ns = FIRST_PAUSE_NS
            log.warning("process.ended", process=child.name, code=code, again_ns=pause_ns)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ns / 1_000_000_000):
                    await self._stopping.wait()
            pause_ns = min(pause_ns * 2, LONGEST_PAUSE_NS)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self.children:
            child.send_signal(number)


async def run_processes(children: Sequence[Child]) -> None:
    """Runs the children until SIGTERM or SIGINT; a second one ends them at once."""
    stopping = asyncio.Event()
    heed_signals(stopping)
    async with Processes(children).running():
        await stopping.wait()
