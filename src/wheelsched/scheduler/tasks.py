"""The tasks and jobs that an application has registered.

Invariant: a task has one handler and one queue. A process gives credits only for the queues of its
own tasks, so it never gets a run that it cannot handle.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from wheelsched.core.targets.queue import check_queue
from wheelsched.errors import HandlerTaken, TaskNotFound, quoted
from wheelsched.scheduler.documents import JobOptions, Schedule
from wheelsched.values.labels import check_name
from wheelsched.wire.queue import ClaimedRun
from wheelsched.worker.handler import Handler

SEPARATOR: Final = ":"


class DeclaredJob(Struct, frozen=True, kw_only=True):
    """A job that is declared in code. Its task has the same name."""

    name: str
    schedule: Schedule
    options: JobOptions


class Tasks:
    """The handlers of one application."""

    def __init__(self, application: str) -> None:
        self.application = application
        self.declared: dict[str, DeclaredJob] = {}
        self._handlers: dict[str, Handler] = {}  # by queue

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self._handlers)

    def queue_of(self, task: str) -> str:
        """The queue of a task, whether or not this process has it."""
        return check_queue(self.application + SEPARATOR + task, pointer="/task")

    def full_name(self, name: str) -> str:
        """The name of a job among all jobs of the tenant."""
        return check_name(self.application + SEPARATOR + name)

    def short_name(self, full_name: str) -> str:
        """The name of a job as the application knows it."""
        return full_name.removeprefix(self.application + SEPARATOR)

    def add(self, task: str, function: Callable[..., object]) -> None:
        """Registers the handler of a task: `handle(payload)` or `handle(payload, run)`."""
        self._add(task, Handler(function))

    def declare(self, job: DeclaredJob, function: Callable[..., object]) -> None:
        """Registers a job and its handler: `handle()`, `handle(run)` or `handle(payload, run)`."""
        self._add(job.name, Handler(function, needs_no_payload=True))
        self.declared[job.name] = job

    def find_handler(self, run: ClaimedRun) -> Handler | None:
        return self._handlers.get(run.queue)

    def handler_of(self, task: str) -> Handler:
        """The handler of a task. Raises `TaskNotFound`."""
        handler = self._handlers.get(self.queue_of(task))
        if handler is None:
            raise TaskNotFound(
                f"this scheduler has no task {quoted(task)}; register it with "
                "@scheduler.task, or pass elsewhere=True if another process handles it"
            )
        return handler

    def _add(self, task: str, handler: Handler) -> None:
        queue = self.queue_of(task)
        if queue in self._handlers:
            raise HandlerTaken(f"the scheduler already has a handler for {quoted(task)}")
        self._handlers[queue] = handler
