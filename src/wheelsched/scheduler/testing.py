"""The scheduler for tests: the same shard and worker, on a store in memory, in virtual time.

Invariant: time stands still unless a test advances it, and never while a handler runs. A run is due
at its time exactly. An idle day takes no longer than an idle minute.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from random import Random
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.config import LeadConfig, SettleConfig, ShardConfig
from wheelsched.core.model import FINAL_STATES, Run, RunState
from wheelsched.core.offset import ClockSample
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.delivery.dispatchers import Dispatchers
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.delivery.queue.distributor import Distributor
from wheelsched.delivery.queue.reports import StoredReports
from wheelsched.errors import HandlerStuck, InvalidSchedulerOption
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import Tenant
from wheelsched.scheduler.config import SchedulerConfig
from wheelsched.scheduler.instance import Instance
from wheelsched.scheduler.scheduler import Scheduler
from wheelsched.scheduler.service import OnUnavailable, Service
from wheelsched.scheduler.tasks import Tasks
from wheelsched.shard.service import Environment, Shard
from wheelsched.testing.clock import VirtualClock
from wheelsched.testing.dispatcher import MemoryDispatcher
from wheelsched.testing.memory import MemoryStore
from wheelsched.testing.tables import MemoryTables
from wheelsched.values.duration import DAY, MILLISECOND, SECOND, parse_duration
from wheelsched.wire.instant import instant, read_us

TENANT_ID: Final = UUID(int=1)
# A lease that outlasts every leap.
CONFIG: Final = ShardConfig(
    lease_ttl_us=5 * DAY,  # it is renewed every day
    lead=LeadConfig(least_us=SECOND // 2),
    settle=SettleConfig(linger_ns=0, finish_ns=0),
    drain_us=SECOND,
)
LONGEST_LEAP_US: Final = DAY
NEAR_US: Final = 2 * SECOND  # before a due time, when it is approached alarm by alarm
WAITING_US: Final = 10 * SECOND  # a run that is armed for longer waits for a handler
STEP_NS: Final = MILLISECOND * 1_000
STEPS: Final = 20
LATEST: Final = 1_000  # runs that are looked at
POLL_NS: Final = MILLISECOND * 1_000
STOP_STEP_NS: Final = 50 * MILLISECOND * 1_000


class EndedRun(Struct, frozen=True, kw_only=True):
    """A run that has ended, as its history shows it."""

    job_name: str
    scheduled_at: datetime
    state: RunState
    attempt: int
    error: str | None


class TestingScheduler(Scheduler):
    """A `Scheduler` whose time a test advances."""

    __test__ = False  # pytest would collect a class of this name

    def __init__(
        self,
        config: SchedulerConfig,
        tasks: Tasks | None = None,
        now: datetime | None = None,
    ) -> None:
        super().__init__(replace(config, shard=CONFIG))
        if tasks is not None:
            self._tasks = tasks
        now_us = SystemClock.wall_us() if now is None else _microseconds(now)
        self._clock = VirtualClock(now_us * 1_000)
        self._tables = MemoryTables(self._clock.wall_us)
        self._shard: asyncio.Task[None] | None = None

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return instant(self._clock.wall_us())

    @property
    def service(self) -> Service:
        """What runs; for `Scheduler.under_test`."""
        return self._running

    async def advance(self, by: str | timedelta, *, timeout_s: float = 10.0) -> list[EndedRun]:
        """Let time pass, e.g. "1d", and return the runs that have ended meanwhile.

        Handlers of runs that come due are called at their time, and have ended when this returns.
        Raises `HandlerStuck` if one takes longer than `timeout_s` of real time.
        """
        by_us = parse_duration(by) if isinstance(by, str) else by // timedelta(microseconds=1)
        return await self.advance_to(instant(self._clock.wall_us() + by_us), timeout_s=timeout_s)

    async def advance_to(self, when: datetime, *, timeout_s: float = 10.0) -> list[EndedRun]:
        """Let time pass until `when`. See `advance`."""
        until_us = _microseconds(when)
        if until_us < self._clock.wall_us():
            raise InvalidSchedulerOption(f"cannot go back from {self.now} to {when}")
        seen = {row.run.key for row in self._tables.runs.values() if _has_ended(row.run)}
        await self._settle(timeout_s)
        while (now_us := self._clock.wall_us()) < until_us:
            if self._shard is not None and self._shard.done():
                self._shard.result()  # raises what has ended it
            await self._step(now_us, until_us)
            await self._await_handlers(timeout_s)
        await self._finish(until_us, timeout_s)
        ended = [row.run for row in self._tables.runs.values() if _has_ended(row.run)]
        return [self._describe(run) for run in ended if run.key not in seen]

    async def stop(self) -> None:
        """Stop, while virtual time passes."""
        service = self._service
        if service is None:
            return
        service.ask_to_stop()
        try:
            with suppress(HandlerStuck):  # then it is cancelled, as by a real scheduler
                await self._settle(self._config.stop_timeout_s)
            while not service.has_ended:
                await self._clock.advance(STOP_STEP_NS)
            await service.stop()
        finally:
            self._service = None

    async def _step(self, now_us: int, until_us: int) -> None:
        """Advances to the next instant at which something may happen."""
        near_us = self._next_due_us(now_us) - NEAR_US
        if near_us > now_us:
            leap_us = min(near_us, until_us, now_us + LONGEST_LEAP_US)
            await self._clock.leap_to(leap_us * 1_000)
            return
        await self._clock.advance_to_alarm(until_us * 1_000)

    def _next_due_us(self, now_us: int) -> int:
        """When a run is due next, or now if one is about to begin."""
        if self._is_run_armed(now_us):
            return now_us
        timers, retries = self._tables.timers.values(), self._tables.retries.values()
        dues_us = [row.due_us for row in timers if row.due_us is not None]
        dues_us += [retry_us for retry_us in retries if retry_us is not None]
        return max(now_us, min(dues_us, default=now_us + 2 * LONGEST_LEAP_US))

    def _is_run_armed(self, now_us: int) -> bool:
        """Whether a run was armed a moment ago. The latest are the last, except for retries."""
        runs, armed_since_us = self._tables.runs, now_us - WAITING_US
        retried = (runs[key].run for key, us in self._tables.retries.items() if us is None)
        if any(_is_armed(run, armed_since_us) for run in retried):
            return True
        for row in reversed(runs.values()):
            if _is_armed(row.run, armed_since_us):
                return True
            if (row.run.armed_at_us or armed_since_us) < armed_since_us:
                return False
        return False

    async def _settle(self, timeout_s: float) -> None:
        """Runs what is ready, and waits until no handler runs."""
        await self._clock.run_ready()
        await self._await_handlers(timeout_s)

    async def _await_handlers(self, timeout_s: float) -> None:
        """Waits, in real time, until no handler runs."""
        machine = SystemClock()
        until_ns = machine.now_ns() + int(timeout_s * 1e9)
        while (worker := self._running.worker) is not None and worker.is_busy:
            if machine.now_ns() >= until_ns:
                raise HandlerStuck(f"a handler did not end within {timeout_s:g} s of real time")
            await machine.sleep(POLL_NS)
            await self._clock.run_ready()

    async def _finish(self, until_us: int, timeout_s: float) -> None:
        """Begins what is due, and writes outcomes: the shard needs some milliseconds for both."""
        for _ in range(STEPS):
            worker = self._running.worker
            is_idle = worker is None or worker.is_idle
            if is_idle and not self._is_due(until_us):
                return
            await self._clock.advance(STEP_NS)
            await self._settle(timeout_s)

    def _is_due(self, until_us: int) -> bool:
        """Whether a run is armed and due that has not begun, although a handler has room."""
        rows = reversed(self._tables.runs.values())
        latest = (row.run for row in islice(rows, LATEST))
        since_us = until_us - NEAR_US
        return any(since_us < run.due_us <= until_us and _is_armed(run, 0) for run in latest)

    def _describe(self, run: Run) -> EndedRun:
        job = self._tables.jobs.get(run.job_id)
        return EndedRun(
            job_name="" if job is None else self._tasks.short_name(job.name),
            scheduled_at=instant(run.due_us),
            state=run.state,
            attempt=run.attempt,
            error=run.error,
        )

    def _open(self, on_unavailable: OnUnavailable) -> AbstractAsyncContextManager[Instance]:
        return self._open_in_memory()

    @asynccontextmanager
    async def _open_in_memory(self) -> AsyncIterator[Instance]:
        clock, store = self._clock, MemoryStore(self._clock.wall_us, self._tables)
        if TENANT_ID not in self._tables.tenants:
            tenant = Tenant(tenant_id=TENANT_ID, name="test", created_at_us=clock.wall_us())
            await store.tenants.create("test", tenant)
        async with QueueDispatcher(clock) as queues:
            random = Random(0)  # noqa: S311
            reports = StoredReports(store.history, store.jobs, clock.wall_us, random)
            distributor = Distributor(reports, clock)
            detach = distributor.attach(queues)
            shard = Shard(self._environment(store, queues), self._config.shard)
            running = self._shard = asyncio.get_running_loop().create_task(shard.run())
            try:
                yield Instance(
                    jobs=store.jobs,
                    source=distributor,
                    tenant_id=TENANT_ID,
                    clock=clock,
                    now_us=clock.wall_us,
                    vitals=shard.vitals,
                )
            finally:
                shard.stop()
                await asyncio.wait([running])
                detach()

    def _environment(self, store: MemoryStore, queues: QueueDispatcher) -> Environment:
        clock, now_ns = self._clock, self._clock.now_ns()
        sample = ClockSample(sent_ns=now_ns, database_us=clock.wall_us(), received_ns=now_ns)
        return Environment(
            stores=store,
            listen=store.listen,
            validate=partial(judge_draft, rules=NO_EXCEPTIONS),
            dispatcher=Dispatchers(MemoryDispatcher(clock), queues),
            machine=clock,
            clock=DatabaseClock(clock, sample),
            random=Random(0),  # noqa: S311 - a test is repeatable
        )


def _is_armed(run: Run, since_us: int) -> bool:
    is_armed = run.state is RunState.ARMED and run.armed_at_us is not None
    return is_armed and (run.armed_at_us or 0) >= since_us


def _has_ended(run: Run) -> bool:
    return run.state in FINAL_STATES


def _microseconds(when: datetime) -> int:
    return read_us(when if when.tzinfo is not None else when.astimezone(), pointer="/now")
