"""Workers that pull, against the API."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from tests.unit.worker.pull.conftest import Pulling
from tests.waiting import until

from wheelsched.core import outcome
from wheelsched.core.outcome import Failed, Rejected, Succeeded
from wheelsched.errors import InvalidApiUrl, InvalidField, NotAllowed, NotAuthenticated
from wheelsched.worker import Gone, Reject, RetryLater, Run, Worker


@dataclass
class Bill:
    number: int


async def test_a_handler_gets_the_payload_and_the_run(pulling: Pulling) -> None:
    worker = Worker()
    got: list[tuple[Bill, Run]] = []

    @worker.job("report")
    async def handle(bill: Bill, run: Run) -> None:
        got.append((bill, run))

    (added,) = pulling.add()
    async with pulling.running(worker):
        await pulling.finished([added])
    ((bill, run),) = got
    assert bill == Bill(0)
    assert (run.run_id, run.token, run.queue) == (added.run_id, added.token, "billing")
    assert (run.attempt, run.job_name, run.scheduled_us) == (1, "report", added.key.due_us)


async def test_exceptions_of_a_handler_decide_the_outcome(pulling: Pulling) -> None:
    worker = Worker()
    errors = [ValueError("no paper"), Reject("no customer"), RetryLater(30), Gone("closed")]

    @worker.job()
    async def handle(bill: Bill) -> None:
        if bill.number < len(errors):
            raise errors[bill.number]

    added = pulling.add(5)
    wrong = pulling.add(payload={"number": "one"})
    async with pulling.running(worker):
        await pulling.finished(added + wrong)
    assert [run.outcome for run in added] == [
        Failed(error="ValueError: no paper"),
        Rejected(error="no customer"),
        Failed(error=str(RetryLater(30)), retry_after_us=30_000_000),
        outcome.Gone(error="closed", http_status=None),
        Succeeded(),
    ]
    assert isinstance(wrong[0].outcome, Rejected)


async def test_a_job_without_a_handler_fails(pulling: Pulling) -> None:
    (added,) = pulling.add()
    async with pulling.running(Worker()):
        await pulling.finished([added])
    assert isinstance(added.outcome, Failed)
    assert "no handler for job 'report'" in added.outcome.error


async def test_sync_handlers_run_in_threads(pulling: Pulling) -> None:
    worker = Worker()
    threads = set()

    @worker.job("report", long=True)  # a run that is pulled may always be long
    def handle(bill: Bill) -> None:
        threads.add(threading.current_thread())

    added = pulling.add(20)
    async with pulling.running(worker):
        await pulling.finished(added)
    assert threading.main_thread() not in threads


async def test_no_more_runs_are_in_hand_than_the_concurrency(pulling: Pulling) -> None:
    worker = Worker()
    running = most = 0
    go_on = asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    added = pulling.add(50)
    async with pulling.running(worker, concurrency=7):

        async def is_full() -> bool:
            return running == 7

        await until(is_full)
        go_on.set()
        await pulling.finished(added)
    assert most == 7
    assert all(run.handed_out == 1 for run in added)


async def test_a_cancelled_run_cancels_its_handler(pulling: Pulling) -> None:
    worker = Worker()
    has_begun, was_cancelled = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    (added,) = pulling.add()
    async with pulling.running(worker):
        await has_begun.wait()
        pulling.work.cancel(added)
        await was_cancelled.wait()
        await pulling.finished([added])
    assert added.outcome == Failed(error="the run was cancelled")


async def test_a_run_that_lasts_is_kept_by_heartbeats(pulling: Pulling) -> None:
    worker = Worker(config=pulling.config)
    go_on = asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        await go_on.wait()

    (added,) = pulling.add()
    async with pulling.running(worker):

        async def has_heartbeat() -> bool:
            return pulling.work.leases == [30_000_000]

        await until(has_heartbeat)
        go_on.set()
        await pulling.finished([added])


async def test_a_run_that_was_lost_is_stopped_and_not_reported(pulling: Pulling) -> None:
    worker = Worker()
    tokens: list[int] = []
    was_cancelled = asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill, run: Run) -> None:
        tokens.append(run.token)
        if len(tokens) > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    (added,) = pulling.add()
    async with pulling.running(worker):

        async def has_begun() -> bool:
            return bool(tokens)

        await until(has_begun)
        added.until_us = 0
        pulling.work.expire()
        await was_cancelled.wait()
        await pulling.finished([added])
    assert added.outcome == Succeeded()
    assert tokens == sorted(tokens)


async def test_a_stopped_worker_finishes_what_it_has_and_takes_nothing_more(
    pulling: Pulling,
) -> None:
    worker = Worker(config=pulling.config)
    has_begun, go_on = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        has_begun.set()
        await go_on.wait()

    (added,) = pulling.add()
    async with pulling.running(worker) as task:
        await has_begun.wait()
        stopping = asyncio.create_task(worker.stop())
        await pulling.registered(0)
        (later,) = pulling.add()
        go_on.set()
        await stopping
        await asyncio.wait([task])
        assert task.exception() is None
    assert added.outcome == Succeeded()
    assert (later.handed_out, later.outcome) == (0, None)


async def test_runs_not_begun_are_given_back(pulling: Pulling) -> None:
    """Sync handlers that wait for a thread have not begun."""
    worker = Worker(config=type(pulling.config)(threads=1, stop_timeout_ms=60_000))
    has_begun, go_on = threading.Event(), threading.Event()

    @worker.job("report")
    def handle(bill: Bill) -> None:
        has_begun.set()
        go_on.wait(60)

    added = pulling.add(3)
    async with pulling.running(worker):

        async def are_handed_out() -> bool:
            return has_begun.is_set() and all(run.handed_out for run in added)

        await until(are_handed_out)
        stopping = asyncio.create_task(worker.stop())

        async def are_given_back() -> bool:
            return [run.given_back for run in added] == [0, 1, 1]

        await until(are_given_back)
        go_on.set()
        await stopping
    assert [run.outcome for run in added] == [Succeeded(), None, None]


async def test_a_handler_that_does_not_end_in_time_is_cancelled_and_reported(
    pulling: Pulling,
) -> None:
    worker = Worker(config=type(pulling.config)(stop_timeout_ms=10))
    has_begun = asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    (added,) = pulling.add()
    async with pulling.running(worker):
        await has_begun.wait()
    assert added.outcome == Failed(error="the worker stopped before the run ended")


async def test_a_cancelled_worker_reports_its_runs_as_failed(pulling: Pulling) -> None:
    worker = Worker()
    has_begun = asyncio.Event()

    @worker.job("report")
    async def handle(bill: Bill) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    (added,) = pulling.add()
    async with pulling.running(worker) as task:
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert added.outcome == Failed(error="the worker stopped before the run ended")


async def test_a_token_that_is_refused_is_an_error(pulling: Pulling) -> None:
    api = pulling.apis[0]
    await api.add_token("wst_read", api.tenant_id, "read")
    with pytest.raises(NotAuthenticated):
        await Worker().run(api.url, token="wst_unknown", queues="billing")
    with pytest.raises(NotAllowed, match="scope 'work'"):
        await Worker().run(api.url, token="wst_read", queues="billing")


async def test_invalid_options_are_errors() -> None:
    with pytest.raises(InvalidApiUrl):
        await Worker().run("localhost:8420", queues="billing")
    with pytest.raises(InvalidField, match="name of a queue"):
        await Worker().run("http://localhost:8420", queues=["no name"])
