"""The scheduler that an application runs inside its own process.

Invariant: a task is executed by an instance that knows it, however many instances there are, and by
one of them for each due run.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, get_args
from uuid import UUID

from wheelsched.clock import SystemClock
from wheelsched.errors import InvalidSchedulerOption, SchedulerNotRunning, SchedulerRunning, quoted
from wheelsched.logs import join_application_logs
from wheelsched.schedule.relative import is_relative
from wheelsched.scheduler.config import Options, SchedulerConfig
from wheelsched.scheduler.declared_jobs import check_declared
from wheelsched.scheduler.documents import (
    APPLICATION,
    JobOptions,
    Period,
    Schedule,
    Times,
    encode_payload,
    job_document,
    read_times,
)
from wheelsched.scheduler.instance import Instance, open_instance
from wheelsched.scheduler.job_book import IfExists
from wheelsched.scheduler.service import OnUnavailable, Service
from wheelsched.scheduler.tasks import DeclaredJob, Tasks
from wheelsched.store import application as transactions
from wheelsched.worker import log as worker_log
from wheelsched.worker.delivery import Connection

if TYPE_CHECKING:
    from wheelsched.scheduler.testing import TestingScheduler

Function = TypeVar("Function", bound=Callable[..., object])


class Scheduler:
    """Runs functions on time, once, however many instances of the service there are.

    ```python
    scheduler = Scheduler("postgresql://…", application="shop")

    @scheduler.job("0 9 * * 1", timezone="America/New_York")
    async def weekly_report(run): ...

    @scheduler.task("remind")
    async def remind(payload: Reminder, run): ...

    async with scheduler:
        await scheduler.schedule("remind-42", at=when, task="remind", payload=Reminder(order=42))
    ```

    See `SchedulerConfig` for the options.
    """

    def __init__(self, url: str | SchedulerConfig, **options: Unpack[Options]) -> None:
        self._config = _read_config(url, options)
        self._tasks = Tasks(self._config.application)
        self._service: Service | None = None
        self._is_under_test = False

    @classmethod
    def embedded(cls, home: str | Path, **options: Unpack[Options]) -> Self:
        """A scheduler with its own Postgres, whose data is in the directory `home`."""
        return cls(SchedulerConfig(home=Path(home), **({"migrate": True} | options)))

    @staticmethod
    def testing(now: datetime | None = None, **options: Unpack[Options]) -> "TestingScheduler":
        """A scheduler for tests: on a store in memory, in virtual time, which begins at `now`."""
        return _make_double(SchedulerConfig(**options), None, now)

    def job(
        self, schedule: Schedule, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Function], Function]:
        """Decorate a function that runs on a schedule: `handle()` or `handle(run)`.

        Without a name, the job has that of the function.
        """
        if callable(schedule):
            raise InvalidSchedulerOption('a job needs a schedule: @scheduler.job("every 1h")')
        if is_relative(schedule):
            raise InvalidSchedulerOption(
                f"{schedule!r} counts from each start of the process; use `schedule` for one-offs"
            )
        self._check_not_running()

        def register(function: Function) -> Function:
            declared = DeclaredJob(
                name=name or _name_of(function), schedule=schedule, options=options
            )
            check_declared(self._tasks, declared, SystemClock.wall_us())
            self._tasks.declare(declared, function)
            return function

        return register

    def task(self, name: str | None = None) -> Callable[[Function], Function]:
        """Decorate the handler of a task: `handle(payload)` or `handle(payload, run)`.

        The payload is decoded into its annotated type, as by `wheelsched.worker.Worker`.
        """
        if callable(name):
            raise InvalidSchedulerOption("write @scheduler.task() with parentheses")
        self._check_not_running()

        def register(function: Function) -> Function:
            self._tasks.add(name or _name_of(function), function)
            return function

        return register

    async def schedule(
        self,
        name: str,
        *,
        task: str,
        payload: object = None,
        at: datetime | str | None = None,
        every: Period | None = None,
        cron: str | None = None,
        rrule: str | None = None,
        if_exists: IfExists = "error",
        connection: Connection | None = None,
        elsewhere: bool = False,
        **options: Unpack[JobOptions],
    ) -> UUID:
        """Schedule a task under a name that no other job of the application has. Returns its id.

        Pass exactly one of `at`, `every`, `cron` and `rrule`. With a `connection` of asyncpg, the
        job exists if and only if the transaction of that connection commits. `elsewhere` allows a
        task that only another process handles.
        """
        if if_exists not in get_args(IfExists):
            raise InvalidSchedulerOption(
                f"invalid if_exists {quoted(if_exists)}; expected error, keep or replace"
            )
        encoded = encode_payload(payload)
        if not elsewhere:
            self._tasks.handler_of(task).decode(bytes(encoded))
        if name in self._tasks.declared:
            raise InvalidSchedulerOption(f"{quoted(name)} is the name of a job declared in code")
        times = Times(at=at, every=every, cron=cron, rrule=rrule)
        schedule = read_times(times, has_timezone="timezone" in options)
        document = job_document(
            self._tasks.full_name(name), schedule, self._tasks.queue_of(task), encoded, options
        )
        document["tags"] = {**_tags_of(options), APPLICATION: self._tasks.application}
        book = self._running.book
        if connection is None or self._is_under_test:
            return await book.schedule(document, if_exists)
        book.parse(document)  # to report all problems at once, and now
        return await transactions.schedule(connection, document, if_exists)

    async def cancel(self, name: str, *, connection: Connection | None = None) -> bool:
        """Delete a job that was scheduled. Returns whether that prevents its next run.

        False: there is no such job, or its run has been handed out already. A job that is declared
        in code is refused: the next instance that starts would register it again.
        """
        full_name = self._tasks.full_name(name)
        if name in self._tasks.declared:
            raise InvalidSchedulerOption(
                f"{quoted(name)} is declared in code, so the next start would register it again; "
                f"remove the declaration, or pause it: wheelsched job pause {full_name}"
            )
        book = self._running.book
        if connection is None or self._is_under_test:
            return await book.cancel(full_name)
        return await transactions.cancel(connection, full_name)

    async def start(self) -> None:
        """Start. `async with scheduler:` does this, and stops at the end."""
        if self._is_under_test:
            return
        if self._service is not None:
            raise SchedulerRunning("the scheduler is running already")
        join_application_logs()
        worker_log.speak_up()  # otherwise a handler that fails would fail in silence
        self._service = service = Service(self._open, self._tasks, self._config)
        try:
            await service.start()
        except BaseException:
            self._service = None
            raise

    async def stop(self) -> None:
        """Take no more runs, wait for the handlers, and hand over to other instances."""
        if self._is_under_test or self._service is None:
            return
        try:
            await self._service.stop()
        finally:
            self._service = None

    def is_ready(self) -> bool:
        """Whether it has started, and its shard works. For a readiness probe; does no I/O."""
        return not self.missing()

    def missing(self) -> list[str]:
        """What it lacks to be ready: `start`, or a condition of its shard, e.g. `lease`."""
        return ["start"] if self._service is None else self._service.missing()

    def metrics(self) -> str:
        """The metrics of its shard, as Prometheus text; empty while it does not run."""
        return "" if self._service is None else self._service.metrics()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """The lifespan of a FastAPI or Starlette application: `FastAPI(lifespan=…)`."""
        async with self:
            yield

    async def cleanup_ctx(self, app: object = None) -> AsyncIterator[None]:
        """For aiohttp: `app.cleanup_ctx.append(scheduler.cleanup_ctx)`."""
        async with self:
            yield

    @asynccontextmanager
    async def under_test(self, now: datetime | None = None) -> AsyncIterator["TestingScheduler"]:
        """Run this scheduler on a store in memory and in virtual time, within the block.

        `async with scheduler.under_test() as time:` then `await time.advance("1d")`. Starting and
        stopping the scheduler itself does nothing meanwhile.
        """
        self._check_not_running()
        double = _make_double(self._config, self._tasks, now)
        async with double:
            self._service, self._is_under_test = double.service, True
            try:
                yield double
            finally:
                self._service, self._is_under_test = None, False

    def _open(self, on_unavailable: OnUnavailable) -> AbstractAsyncContextManager[Instance]:
        return open_instance(self._config, on_unavailable)

    @property
    def _running(self) -> Service:
        if self._service is None:
            raise SchedulerNotRunning
        return self._service

    def _check_not_running(self) -> None:
        if self._service is not None:
            raise SchedulerRunning


def _make_double(
    config: SchedulerConfig, tasks: Tasks | None, now: datetime | None
) -> "TestingScheduler":
    double: TestingScheduler = import_module("wheelsched.scheduler.testing").TestingScheduler(
        config, tasks, now
    )
    return double


def _read_config(url: object, options: Options) -> SchedulerConfig:
    if isinstance(url, str):
        return SchedulerConfig(url=url, **options)
    if not isinstance(url, SchedulerConfig):
        raise InvalidSchedulerOption(
            f"expected the URL of a database, e.g. postgresql://localhost/shop, not {url!r}"
        )
    if options:
        raise InvalidSchedulerOption(
            f"set {', '.join(sorted(options))} in the SchedulerConfig, which has all options"
        )
    return url


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise InvalidSchedulerOption(f"{function!r} has no name; pass one")
    return name


def _tags_of(options: JobOptions) -> Mapping[str, str]:
    return options.get("tags", {})
