"""The scheduler of an application, in virtual time."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct
from pydantic import BaseModel

from wheelsched import Scheduler
from wheelsched.config import WorkerConfig
from wheelsched.errors import (
    HandlerStuck,
    HandlerTaken,
    InvalidDocument,
    InvalidHandler,
    InvalidInstant,
    InvalidPayload,
    InvalidSchedulerOption,
    JobNameTaken,
    RetryLater,
    SchedulerNotRunning,
    SchedulerRunning,
    StoreFault,
    TaskNotFound,
)
from wheelsched.scheduler import TestingScheduler
from wheelsched.shard.service import Shard
from wheelsched.testing import testing_scheduler  # noqa: F401 - a fixture
from wheelsched.worker import Gone, Run

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)  # a Monday


class Reminder(Struct):
    order: int
    text: str = ""


@dataclass
class Invoice:
    customer: int


class Order(BaseModel):
    number: int


class Shop:
    """A scheduler with one task, and what its handler was called with."""

    def __init__(self, scheduler: TestingScheduler) -> None:
        self.scheduler = scheduler
        self.reminded: list[tuple[int, datetime]] = []
        scheduler.task("remind")(self.remind)

    async def remind(self, payload: Reminder, run: Run) -> None:
        self.reminded.append((payload.order, run.scheduled_at))


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    scheduler = Scheduler.testing(NOON, application="shop")
    shop = Shop(scheduler)
    async with scheduler:
        yield shop


async def test_a_declared_job_runs_at_its_local_time() -> None:
    scheduler = Scheduler.testing(NOON)
    ran: list[tuple[datetime, str]] = []

    @scheduler.job("0 9 * * 1", timezone="America/New_York")
    async def weekly_report(run: Run) -> None:
        ran.append((run.scheduled_at, run.job_name))

    async with scheduler:
        await scheduler.advance("15d")
    hour = timedelta(hours=1)
    mondays = [NOON + 2 * hour + number * timedelta(days=7) for number in range(3)]
    assert ran == [(monday, "weekly_report") for monday in mondays]


async def test_a_job_may_take_nothing_or_payload_and_run() -> None:
    scheduler = Scheduler.testing(NOON)
    ran: list[str] = []

    @scheduler.job("every 1h")
    def plain() -> None:
        ran.append("plain")

    @scheduler.job("every 1h", name="full")
    async def handle(payload: None, run: Run) -> None:
        ran.append(run.job_name)

    with pytest.raises(InvalidHandler):

        @scheduler.job("every 1h")
        async def wrong(first: int, second: int, third: int) -> None: ...

    async with scheduler:
        await scheduler.advance("1h")
    assert sorted(ran) == ["full", "plain"]


async def test_a_task_runs_once_at_its_time(shop: Shop) -> None:
    due = NOON + timedelta(hours=1)
    await shop.scheduler.schedule("remind-42", at=due, task="remind", payload=Reminder(42))
    assert await shop.scheduler.advance(timedelta(minutes=59)) == []
    (ended,) = await shop.scheduler.advance("1m")
    assert (ended.job_name, ended.state, ended.scheduled_at) == ("remind-42", "succeeded", due)
    assert await shop.scheduler.advance("30d") == []
    assert shop.reminded == [(42, due)]


@pytest.mark.parametrize(
    "times",
    [
        {"at": "in 20m"},
        {"at": NOON.replace(tzinfo=None) + timedelta(minutes=20), "timezone": "UTC"},
        {"every": timedelta(minutes=20)},
        {"every": "20m"},
        {"cron": "20 * * * *"},
        {"rrule": "FREQ=HOURLY;BYMINUTE=20;BYSECOND=0"},
    ],
)
async def test_every_kind_of_time(shop: Shop, times: dict[str, object]) -> None:
    await shop.scheduler.schedule("one", task="remind", payload={"order": 1}, **times)  # type: ignore[arg-type]
    await shop.scheduler.advance("21m")
    assert shop.reminded == [(1, NOON + timedelta(minutes=20))]


async def test_invalid_times_are_refused(shop: Shop) -> None:
    schedule = shop.scheduler.schedule
    with pytest.raises(InvalidSchedulerOption, match="exactly one"):
        await schedule("one", task="remind", payload=Reminder(1))
    with pytest.raises(InvalidSchedulerOption, match="exactly one"):
        await schedule("one", task="remind", payload=Reminder(1), at="in 1m", every="1m")
    with pytest.raises(InvalidInstant, match="no time zone"):
        await schedule("one", task="remind", payload=Reminder(1), at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidDocument):
        await schedule("one", task="remind", payload=Reminder(1), cron="61 * * * *")
    with pytest.raises(InvalidSchedulerOption, match="colour"):
        await schedule("one", task="remind", payload=Reminder(1), at="in 1m", colour=1)  # type: ignore[call-arg]


async def test_payloads_have_the_type_of_their_handler() -> None:
    scheduler = Scheduler.testing(NOON)
    got: list[object] = []

    @scheduler.task()
    async def invoice(payload: Invoice) -> None:
        got.append(payload)

    @scheduler.task()
    async def order(payload: Order) -> None:
        got.append(payload)

    @scheduler.task()
    async def orders(payload: list[Order]) -> None:
        got.append(payload)

    async with scheduler:
        await scheduler.schedule("1", at="in 1s", task="invoice", payload=Invoice(7))
        await scheduler.schedule("2", at="in 2s", task="order", payload=Order(number=8))
        await scheduler.schedule("3", at="in 3s", task="orders", payload=[Order(number=9)])
        with pytest.raises(InvalidPayload):
            await scheduler.schedule("4", at="in 1s", task="invoice", payload={"customer": "x"})
        await scheduler.advance("4s")
    assert got == [Invoice(7), Order(number=8), [Order(number=9)]]


async def test_a_name_is_taken_until_its_job_has_ended(shop: Shop) -> None:
    schedule, advance = shop.scheduler.schedule, shop.scheduler.advance
    first = await schedule("one", at="in 1h", task="remind", payload=Reminder(1))
    with pytest.raises(JobNameTaken, match="shop:one"):
        await schedule("one", at="in 2h", task="remind", payload=Reminder(2))
    kept = await schedule("one", at="in 2h", task="remind", payload=Reminder(2), if_exists="keep")
    assert kept == first
    await schedule("one", at="in 2h", task="remind", payload=Reminder(3), if_exists="replace")
    await advance("3h")
    await schedule("one", at="in 1h", task="remind", payload=Reminder(4))
    await advance("1h")
    assert [order for order, _ in shop.reminded] == [3, 4]


async def test_a_declared_job_cannot_be_cancelled() -> None:
    scheduler = Scheduler.testing(NOON, application="shop")

    @scheduler.job("every 1h")
    async def report() -> None: ...

    async with scheduler:
        with pytest.raises(InvalidSchedulerOption, match="wheelsched job pause shop:report"):
            await scheduler.cancel("report")
        (ended,) = await scheduler.advance("1h")
    assert ended.job_name == "report"


async def test_a_cancelled_job_does_not_run(shop: Shop) -> None:
    await shop.scheduler.schedule("one", every="1h", task="remind", payload=Reminder(1))
    await shop.scheduler.advance("1h")
    assert await shop.scheduler.cancel("one")
    assert not await shop.scheduler.cancel("one")
    await shop.scheduler.advance("1d")
    assert len(shop.reminded) == 1


async def test_a_handler_that_fails_is_called_again() -> None:
    scheduler = Scheduler.testing(NOON)
    attempts: list[datetime] = []

    @scheduler.task("flaky")
    async def flaky(payload: None, run: Run) -> None:
        attempts.append(scheduler.now)
        if run.attempt == 1:
            raise RetryLater(240)
        if run.attempt == 2:
            raise ConnectionError("away")

    async with scheduler:
        await scheduler.schedule("one", at="in 1m", task="flaky")
        (ended,) = await scheduler.advance("1h")
    assert (ended.state, ended.attempt) == ("succeeded", 3)
    assert attempts[1] - attempts[0] >= timedelta(minutes=4)


async def test_a_run_that_fails_for_good_says_why() -> None:
    scheduler = Scheduler.testing(NOON)

    @scheduler.task("broken")
    async def broken(payload: None) -> None:
        raise ValueError("out of paper")

    async with scheduler:
        await scheduler.schedule("one", at="in 1m", task="broken", retry={"max_attempts": 1})
        (ended,) = await scheduler.advance("1h")
    assert ended.state == "dead"
    assert ended.error == "ValueError: out of paper"


async def test_a_job_whose_handler_is_gone_is_paused() -> None:
    scheduler = Scheduler.testing(NOON)
    ran: list[datetime] = []

    @scheduler.job("every 1h")
    async def hourly(run: Run) -> None:
        ran.append(run.scheduled_at)
        raise Gone("no more")

    async with scheduler:
        ended = await scheduler.advance("3h")
    assert [(run.state, run.error) for run in ended] == [("dead", "no more")]
    assert len(ran) == 1


async def test_a_function_that_is_not_async_runs_in_a_thread() -> None:
    scheduler = Scheduler.testing(NOON)
    threads: list[threading.Thread] = []

    @scheduler.job("every 1m")
    def blocking() -> None:
        threads.append(threading.current_thread())

    async with scheduler:
        await scheduler.advance("2m")
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_handler_may_schedule_the_next_task(shop: Shop) -> None:
    scheduler = Scheduler.testing(NOON)
    done: list[datetime] = []

    @scheduler.task("first")
    async def first(payload: None, run: Run) -> None:
        await scheduler.schedule("second", at="in 1h", task="second")

    @scheduler.task("second")
    async def second(payload: None, run: Run) -> None:
        done.append(run.scheduled_at)

    async with scheduler:
        await scheduler.schedule("first", at="in 1h", task="first")
        await scheduler.advance("1d")
    (when,) = done
    assert timedelta(hours=2) <= when - NOON < timedelta(hours=2, seconds=1)


async def test_a_task_that_no_process_has_is_refused(shop: Shop) -> None:
    with pytest.raises(TaskNotFound, match="remnd"):
        await shop.scheduler.schedule("one", at="in 1h", task="remnd")


async def test_a_run_of_a_task_that_this_process_does_not_know_waits(shop: Shop) -> None:
    await shop.scheduler.schedule(
        "one", at="in 1h", task="other", elsewhere=True, claim_within=timedelta(hours=2)
    )
    assert await shop.scheduler.advance("2h") == []
    (ended,) = await shop.scheduler.advance("2h")
    assert ended.state == "dead"
    assert ended.error is not None
    assert "2h" in ended.error


async def test_no_more_handlers_run_at_once_than_wanted() -> None:
    scheduler = Scheduler.testing(NOON, concurrency=3)
    running, most = 0, 0

    @scheduler.task("slow")
    async def slow(payload: None) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async with scheduler:
        for number in range(20):
            await scheduler.schedule(f"{number}", at="in 1m", task="slow")
        assert len(await scheduler.advance("2m")) == 20
    assert most == 3


async def test_without_concurrency_a_process_only_schedules() -> None:
    scheduler = Scheduler.testing(NOON, concurrency=0)

    @scheduler.task("never")
    async def never(payload: None) -> None:
        raise AssertionError

    async with scheduler:
        await scheduler.schedule("one", at="in 1m", task="never")
        assert await scheduler.advance("10m") == []


async def test_a_stuck_handler_does_not_hang_a_test() -> None:
    scheduler = Scheduler.testing(NOON, stop_timeout_s=0.05)

    @scheduler.task("stuck")
    async def stuck(payload: None) -> None:
        await asyncio.Event().wait()

    async with scheduler:
        await scheduler.schedule("one", at="in 1m", task="stuck")
        with pytest.raises(HandlerStuck):
            await scheduler.advance("2m", timeout_s=0.05)


async def test_time_does_not_go_back(shop: Shop) -> None:
    with pytest.raises(InvalidSchedulerOption, match="cannot go back"):
        await shop.scheduler.advance(timedelta(seconds=-1))
    with pytest.raises(InvalidSchedulerOption, match="cannot go back"):
        await shop.scheduler.advance_to(NOON - timedelta(hours=1))


async def test_a_shard_that_fails_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(shard: Shard) -> None:
        raise StoreFault("broken")

    monkeypatch.setattr(Shard, "run", fail)
    async with Scheduler.testing(NOON) as scheduler:
        with pytest.raises(StoreFault, match="broken"):
            await scheduler.advance("1d")


async def test_names_and_handlers_are_checked_when_they_are_registered(shop: Shop) -> None:
    scheduler = Scheduler.testing()
    scheduler.task("one")(shop.remind)
    with pytest.raises(HandlerTaken):
        scheduler.task("one")(shop.remind)
    with pytest.raises(HandlerTaken):
        scheduler.job("every 1h", name="one")(lambda: None)
    with pytest.raises(InvalidSchedulerOption, match="each start"):
        scheduler.job("in 5m")
    with pytest.raises(SchedulerRunning):
        shop.scheduler.task("two")


async def test_an_unknown_answer_to_a_taken_name_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidSchedulerOption, match="expected error, keep or replace"):
        await shop.scheduler.schedule(
            "one",
            at="in 1h",
            task="remind",
            payload=Reminder(1),
            if_exists="replce",  # type: ignore[arg-type]
        )


async def test_a_declared_job_keeps_its_name() -> None:
    scheduler = Scheduler.testing(NOON)
    scheduler.job("every 1h", name="report")(lambda: None)
    scheduler.task("other")(lambda payload: None)
    async with scheduler:
        with pytest.raises(InvalidSchedulerOption, match="declared"):
            await scheduler.schedule("report", at="in 1h", task="other", if_exists="replace")


async def test_nothing_is_scheduled_while_it_does_not_run() -> None:
    scheduler = Scheduler("postgresql://nowhere/at-all")
    scheduler.task("one")(lambda payload: None)
    with pytest.raises(SchedulerNotRunning):
        await scheduler.schedule("one", at="in 1h", task="one")
    with pytest.raises(SchedulerNotRunning):
        await scheduler.cancel("one")
    await scheduler.stop()


async def test_a_stop_waits_for_handlers_and_gives_back_the_rest() -> None:
    scheduler = Scheduler.testing(NOON, worker=WorkerConfig(threads=1), stop_timeout_s=60)
    began, may_end = threading.Event(), threading.Event()
    ran: list[str] = []

    @scheduler.task("slow")
    def slow(payload: None, run: Run) -> None:
        began.set()
        assert may_end.wait(60)
        ran.append(run.job_name)

    await scheduler.start()
    for number in range(3):
        await scheduler.schedule(f"{number}", at="in 1m", task="slow")
    with pytest.raises(HandlerStuck):
        await scheduler.advance("2m", timeout_s=0.05)
    assert began.wait(60)
    may_end.set()
    await scheduler.stop()
    assert len(ran) == 1


async def test_a_scheduler_tells_its_readiness_and_its_metrics() -> None:
    scheduler = Scheduler.testing(NOON)
    Shop(scheduler)
    assert (scheduler.is_ready(), scheduler.missing()) == (False, ["start"])
    assert scheduler.metrics() == ""
    async with scheduler:
        await scheduler.schedule("one", every="1m", task="remind", payload=Reminder(order=1))
        await scheduler.advance("5m")
        assert (scheduler.is_ready(), scheduler.missing()) == (True, [])
        assert 'wheelsched_runs_total{state="succeeded"} 5.0' in scheduler.metrics()
    assert not scheduler.is_ready()


async def test_a_scheduler_under_test_tells_them_too() -> None:
    scheduler = Scheduler("postgresql://nowhere.invalid/none")
    async with scheduler.under_test(NOON) as time:
        await time.advance("1m")
        assert scheduler.is_ready()
        assert "wheelsched_partitions" in scheduler.metrics()


async def test_a_scheduler_can_start_again(shop: Shop) -> None:
    scheduler = Scheduler.testing(NOON)
    ran: list[datetime] = []

    @scheduler.job("every 1h")
    async def hourly(run: Run) -> None:
        ran.append(run.scheduled_at)

    for _ in range(2):
        async with scheduler:
            await scheduler.advance("1h")
    assert len(ran) == 2
    with pytest.raises(SchedulerRunning):
        await shop.scheduler.start()


async def test_a_scheduler_of_an_application_runs_under_test() -> None:
    """Its module-level object is used by the code that is tested."""
    scheduler = Scheduler("postgresql://nowhere/at-all", application="shop")
    got: list[int] = []

    @scheduler.task("remind")
    async def remind(payload: Reminder) -> None:
        got.append(payload.order)

    async with scheduler.under_test(NOON) as time, scheduler.lifespan():
        await scheduler.schedule("one", at="in 1d", task="remind", payload=Reminder(5))
        await time.advance("1d")
    assert got == [5]
    with pytest.raises(SchedulerNotRunning):
        await scheduler.cancel("one")


async def test_the_fixture_is_a_scheduler_for_tests(
    testing_scheduler: TestingScheduler,  # noqa: F811 - the fixture
) -> None:
    ran: list[str] = []
    testing_scheduler.job("every 1h", name="hourly")(lambda: ran.append("hourly"))
    async with testing_scheduler:
        await testing_scheduler.advance("1h")
    assert ran == ["hourly"]


async def test_a_long_time_without_runs_passes_quickly(shop: Shop) -> None:
    """A year, in which a shard wakes up a hundred million times."""
    due = NOON + timedelta(days=365)
    await shop.scheduler.schedule("one", at=due, task="remind", payload=Reminder(1))
    await shop.scheduler.advance_to(due)
    assert shop.reminded == [(1, due)]


def test_without_settings_a_failing_handler_is_not_silent() -> None:
    """In a process of its own, because pytest configures `logging`."""
    program = """
import asyncio
from wheelsched import Scheduler

scheduler = Scheduler.testing()

@scheduler.job("every 1m", retry={"max_attempts": 1})
async def report():
    raise ValueError("out of paper")

async def main():
    async with scheduler:
        await scheduler.advance("1m")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert "ValueError: out of paper" in done.stderr
    assert "Traceback" in done.stderr
