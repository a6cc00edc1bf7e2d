"""What is checked where an application registers its jobs and tasks."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wheelsched import Scheduler
from wheelsched.errors import InvalidDocument, InvalidHandler, InvalidSchedulerOption
from wheelsched.worker import Run

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def _wants_a_keyword(run: Run, *, order: int) -> None: ...


def _generator() -> Iterator[None]:
    yield


async def _async_generator(run: Run) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("handler", [_wants_a_keyword, _generator, _async_generator, dict, 5])
def test_a_handler_that_cannot_work_is_refused_when_it_is_registered(handler: Any) -> None:
    scheduler = Scheduler.testing()
    with pytest.raises(InvalidHandler):
        scheduler.job("every 1h", name="one")(handler)
    with pytest.raises(InvalidHandler):
        scheduler.task("one")(handler)


async def test_an_object_with_an_async_call_runs_on_the_loop() -> None:
    scheduler = Scheduler.testing(NOON)
    ran: list[threading.Thread] = []

    class Report:
        async def __call__(self, run: Run) -> None:
            ran.append(threading.current_thread())

    def logged(handler: Callable[[Run], Awaitable[None]]) -> Callable[[Run], Awaitable[None]]:
        @functools.wraps(handler)
        def call(run: Run) -> Awaitable[None]:
            asyncio.get_running_loop()
            return handler(run)

        return call

    @scheduler.job("every 1h")
    @logged
    async def decorated(run: Run) -> None:
        ran.append(threading.current_thread())

    scheduler.job("every 1h", name="report")(Report())
    async with scheduler:
        await scheduler.advance("1h")
    assert ran == 2 * [threading.current_thread()]


@pytest.mark.parametrize(
    ("schedule", "options", "message"),
    [
        ("61 * * * *", {}, "minute '61'"),
        ("every 1h", {"retry": {"max_attempts": "many"}}, "max_attempts"),
        ("every 1h", {"colour": "red"}, "colour"),
        ("every 1h", {"tags": {"release": "2"}}, "release"),
        (timedelta(hours=1), {}, "schedule"),
    ],
)
def test_a_job_is_checked_where_it_is_declared(
    schedule: Any, options: dict[str, Any], message: str
) -> None:
    scheduler = Scheduler.testing()
    with pytest.raises((InvalidDocument, InvalidSchedulerOption), match=message):

        @scheduler.job(schedule, **options)
        async def report() -> None: ...


def test_a_decorator_without_arguments_is_refused() -> None:
    """Otherwise nothing would be registered, and the function would be gone."""
    scheduler = Scheduler.testing()
    decorators: list[Any] = [scheduler.task, scheduler.job]
    for decorator in decorators:
        with pytest.raises(InvalidSchedulerOption, match="@scheduler"):
            decorator(lambda payload: None)
