"""Runs a scheduler in its own task, from its start to its end.

Invariant: whatever fails after the start is logged and started again. Starting and stopping are
bounded in time, and may be called from different tasks.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import structlog
from prometheus_client import generate_latest

from wheelsched.clock import SystemClock
from wheelsched.errors import (
    SchedulerNotReady,
    SchedulerNotRunning,
    StoreError,
    StoreUnavailable,
    first_of,
)
from wheelsched.metrics import shard_registry
from wheelsched.ports import Caller
from wheelsched.scheduler.config import SchedulerConfig
from wheelsched.scheduler.declared_jobs import DeclaredJobs
from wheelsched.scheduler.instance import MARGIN_S, Instance
from wheelsched.scheduler.job_book import JobBook
from wheelsched.scheduler.local_worker import REPORT_S, WITHDRAW_S, LocalWorker
from wheelsched.scheduler.tasks import Tasks
from wheelsched.values.duration import MILLISECOND
from wheelsched.worker.attempt import Resources
from wheelsched.worker.deduplication import MemoryOnce
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.pull.hands import Hands

log = structlog.get_logger("wheelsched.scheduler")

OnUnavailable: TypeAlias = Callable[[StoreError], None]  # called while the database is awaited
Open: TypeAlias = Callable[[OnUnavailable], AbstractAsyncContextManager[Instance]]

RETRY_NS: Final = 1_000_000_000
CLOSE_S: Final = 15.0  # for connections and the embedded server


class Service:
    """A scheduler that is started once and stopped once."""

    def __init__(self, open_instance: Open, tasks: Tasks, config: SchedulerConfig) -> None:
        self.worker: LocalWorker | None = None
        self._open = open_instance
        self._tasks = tasks
        self._config = config
        self._book: JobBook | None = None
        self._once: MemoryOnce | None = None
        self._fencing = FencingCheck()
        self._unavailable: StoreError | None = None
        self._is_open = False  # runs may be in hand
        self._instance: Instance | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    @property
    def book(self) -> JobBook:
        """The jobs. Raises `SchedulerNotRunning`."""
        if self._book is None:
            raise SchedulerNotRunning
        return self._book

    def missing(self) -> list[str]:
        """What the scheduler lacks to be ready."""
        if self._instance is None:
            return ["start"]
        return self._instance.vitals.missing(self._instance.clock.now_ns() // 1_000)

    def metrics(self) -> str:
        """The metrics of the shard; empty while there is none."""
        if self._instance is None:
            return ""
        registry = shard_registry(self._instance.vitals, self._instance.clock)
        return generate_latest(registry).decode()

    @property
    def has_ended(self) -> bool:
        return self._serving is None or self._serving.done()

    async def start(self) -> None:
        """Returns when the declared jobs are registered and the worker takes runs."""
        serving = self._serving = asyncio.get_running_loop().create_task(self._serve())
        try:
            await self._wait_until_ready(serving)
        except BaseException:
            serving.cancel()
            await asyncio.wait([serving], timeout=CLOSE_S)
            raise

    async def _wait_until_ready(self, serving: "asyncio.Task[None]") -> None:
        ready = asyncio.get_running_loop().create_task(self._ready.wait())
        timeout_s = self._config.start_timeout_s
        try:
            await asyncio.wait(
                {serving, ready}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if serving.cancelled():
            raise SchedulerNotReady("the scheduler was stopped before it had started")
        if serving.done() and (error := serving.exception()) is not None:
            raise first_of(error) or error
        if not self._ready.is_set():
            reason = "see its log" if self._unavailable is None else str(self._unavailable)
            raise SchedulerNotReady(
                f"the scheduler did not start within {timeout_s:g} s: {reason}"
            ) from self._unavailable

    def ask_to_stop(self) -> None:
        self._stopping.set()

    async def stop(self) -> None:
        """Returns when the handlers have ended and the shard has handed over, or in time."""
        self.ask_to_stop()
        if self._serving is None:
            return
        if not self._is_open:  # it waits for the database, and has nothing to hand over
            self._serving.cancel()
        config = self._config
        handlers_s = config.stop_timeout_s + WITHDRAW_S + REPORT_S
        shard_s = config.shard.drain_us / 1e6 + MARGIN_S
        _, pending = await asyncio.wait([self._serving], timeout=handlers_s + shard_s + CLOSE_S)
        if pending:
            log.error("scheduler.stuck", advice="it did not stop in time and is cancelled")
            self._serving.cancel()
            await asyncio.wait([self._serving], timeout=CLOSE_S)

    async def _serve(self) -> None:
        while True:
            try:
                async with self._open(self._note_unavailable) as instance:
                    await self._work(instance)
            except Exception:
                if not self._ready.is_set():
                    raise
                log.exception("scheduler.failed")
            if self._stopping.is_set():
                return
            self._is_open = False
            await SystemClock().sleep(RETRY_NS)

    async def _work(self, instance: Instance) -> None:
        """Takes runs until it is asked to stop, then drains."""
        self._unavailable = None
        caller = Caller(instance.tenant_id, f"application {self._config.application}")
        book = JobBook(instance.jobs, caller, instance.now_us)
        await self._declare(book)
        self._is_open = True
        threads = ThreadPoolExecutor(self._config.worker.threads, "wheelsched-handler")
        worker = self.worker = self._make_worker(instance, threads)
        loop = asyncio.get_running_loop()
        running = loop.create_task(worker.run())
        stopping = loop.create_task(self._stopping.wait())
        try:
            if self._tasks.queues and self._config.concurrency:
                worker.subscribe(self._tasks.queues)
            self._book, self._instance = book, instance
            self._ready.set()
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            await worker.drain(self._config.stop_timeout_s)
        finally:
            self._book = self._instance = None
            running.cancel()
            stopping.cancel()
            try:
                await worker.abandon()
                await asyncio.wait([running, stopping])
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    async def _declare(self, book: JobBook) -> None:
        while True:
            try:
                await DeclaredJobs(book, self._tasks, self._config).sync()
            except StoreUnavailable as error:
                log.warning("database.awaited", error=str(error))
                self._note_unavailable(error)
                await SystemClock().sleep(RETRY_NS)
            else:
                return

    def _make_worker(self, instance: Instance, threads: ThreadPoolExecutor) -> LocalWorker:
        """The worker of an instance. It knows what was done before the instance failed."""
        config, clock = self._config, instance.clock
        if self._once is None:
            self._once = MemoryOnce(clock=clock)
        resources = Resources(config.deduplicate or self._once, self._fencing, threads, clock)
        hands = Hands(self._tasks.find_handler, resources, config.worker, config.concurrency)
        lease_us = config.worker.lease_ms * MILLISECOND
        worker = LocalWorker(instance.source, instance.tenant_id, hands, clock, lease_us)
        worker.short_name = self._tasks.short_name
        return worker

    def _note_unavailable(self, error: StoreError) -> None:
        self._unavailable = error
