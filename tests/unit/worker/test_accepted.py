"""Runs that continue after a 202, in virtual time."""

import asyncio
import threading

import pytest
from tests.unit.worker.callbacks import NOW_S, batch, element, make_worker, run_id, send, single

from wheelsched.errors import ApiUnavailable, NotFound, StaleToken
from wheelsched.testing import VirtualClock
from wheelsched.wire.callback import read_answers
from wheelsched.worker import Gone, Reject, Run, WorkerConfig
from wheelsched.worker.answer import Answer

TOKEN = 4294967297
SECOND_NS = 1_000_000_000
# Thirty seconds to be silent for, so a heartbeat every ten.
TIMEOUT = {"wheelsched-timeout-ms": "30000"}


class Heard:
    """Records the reports. `answers` are the results of the next calls; later calls succeed."""

    def __init__(self, *answers: Exception | None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._answers = list(answers)

    async def heartbeat(self, run_id: str, token: int) -> None:
        self._take("heartbeat", run_id, token)

    async def complete(self, run_id: str, token: int) -> None:
        self._take("complete", run_id, token)

    async def fail(self, run_id: str, token: int, error: str, *, retry: bool = True) -> None:
        self._take("fail", run_id, token, error, retry)

    def _take(self, *call: object) -> None:
        self.calls.append(call)
        if self._answers and (answer := self._answers.pop(0)):
            raise answer


class Shift:
    """A worker with one long job that the test ends."""

    def __init__(self, heard: Heard, config: WorkerConfig | None = None) -> None:
        self.clock = VirtualClock(NOW_S * SECOND_NS)
        self.worker = make_worker(client=heard, clock=self.clock, config=config)
        self.begun, self.end = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.cancelled = False
        self.worker.job("report", long=True)(self._handle)

    async def _handle(self, payload: object) -> None:
        self.begun.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.error:
            raise self.error

    async def finish(self) -> None:
        self.end.set()
        await self.clock.run_ready()


async def test_a_long_run_is_accepted_at_once_heartbeats_and_completes() -> None:
    heard = Heard()
    shift = Shift(heard)
    assert (await send(shift.worker, single(headers=TIMEOUT))).status == 202
    await shift.begun.wait()
    await shift.clock.advance(25 * SECOND_NS)
    await shift.finish()
    await shift.clock.advance(60 * SECOND_NS)
    heartbeat = ("heartbeat", run_id(), TOKEN)
    assert heard.calls == [heartbeat, heartbeat, ("complete", run_id(), TOKEN)]


async def test_without_a_timeout_in_the_callback_the_configured_one_counts() -> None:
    heard = Heard()
    shift = Shift(heard, WorkerConfig(timeout_ms=9_000))
    await send(shift.worker, single())
    await shift.clock.advance(10 * SECOND_NS)
    assert len(heard.calls) == 3
    await shift.finish()


@pytest.mark.parametrize(
    ("error", "told", "retry"),
    [
        (ValueError("no paper"), "ValueError: no paper", True),
        (Reject("never"), "never", False),
        (Gone("moved"), "moved", False),
    ],
)
async def test_a_failure_is_reported(error: Exception, told: str, retry: bool) -> None:
    heard = Heard()
    shift = Shift(heard)
    shift.error = error
    await send(shift.worker, single())
    await shift.finish()
    assert heard.calls == [("fail", run_id(), TOKEN, told, retry)]


@pytest.mark.parametrize("answer", [StaleToken(status=409), NotFound(status=404)])
async def test_a_stale_run_is_cancelled_and_not_reported(answer: Exception) -> None:
    heard = Heard(None, answer)
    shift = Shift(heard)
    await send(shift.worker, single(headers=TIMEOUT))
    await shift.clock.advance(60 * SECOND_NS)
    assert shift.cancelled
    assert [call[0] for call in heard.calls] == ["heartbeat", "heartbeat"]


async def test_a_stale_run_is_not_done() -> None:
    heard = Heard(StaleToken(status=409))
    shift = Shift(heard)
    await send(shift.worker, single(headers=TIMEOUT))
    await shift.clock.advance(60 * SECOND_NS)
    shift.begun.clear()
    again = single(headers=TIMEOUT | {"wheelsched-fencing-token": str(TOKEN + 1)})
    assert (await send(shift.worker, again)).status == 202
    await shift.begun.wait()
    await shift.finish()
    assert heard.calls[-1] == ("complete", run_id(), TOKEN + 1)


@pytest.mark.parametrize("error", [ApiUnavailable(), RuntimeError("the session is closed")])
async def test_a_lost_heartbeat_ends_nothing(error: Exception) -> None:
    heard = Heard(error)
    shift = Shift(heard)
    await send(shift.worker, single(headers=TIMEOUT))
    await shift.clock.advance(20 * SECOND_NS)
    await shift.finish()
    assert [call[0] for call in heard.calls] == ["heartbeat", "heartbeat", "complete"]


async def test_a_report_that_is_not_heard_is_repeated() -> None:
    heard = Heard(ApiUnavailable(), RuntimeError("the session is closed"))
    shift = Shift(heard)
    await send(shift.worker, single(headers=TIMEOUT))
    await shift.finish()
    await shift.clock.advance(60 * SECOND_NS)
    assert [call[0] for call in heard.calls] == ["complete"] * 3


async def test_a_report_is_given_up_when_the_run_must_have_timed_out() -> None:
    heard = Heard(*[ApiUnavailable() for _ in range(9)])
    shift = Shift(heard)
    await send(shift.worker, single(headers=TIMEOUT))
    await shift.finish()
    await shift.clock.advance(600 * SECOND_NS)
    assert [call[0] for call in heard.calls] == ["complete"] * 3


async def test_a_duplicate_of_a_long_run_that_is_done_is_a_success() -> None:
    heard = Heard()
    shift = Shift(heard)
    assert (await send(shift.worker, single())).status == 202
    await shift.finish()
    assert (await send(shift.worker, single())).status == 200
    assert len(heard.calls) == 1


async def test_a_handler_may_decide_to_be_long() -> None:
    heard = Heard()
    worker = make_worker(client=heard)
    end = asyncio.Event()

    @worker.job("report")
    async def handle(payload: dict[str, bool], run: Run) -> None:
        if payload["long"]:
            run.accept()
            await end.wait()

    assert (await send(worker, single(b'{"long": false}', number=1))).status == 200
    assert (await send(worker, single(b'{"long": true}', number=2))).status == 202
    end.set()
    await worker.stop()
    assert heard.calls == [("complete", run_id(2), TOKEN)]


async def test_a_handler_in_a_thread_may_be_long() -> None:
    heard = Heard()
    worker = make_worker(client=heard)
    end = threading.Event()

    @worker.job("report")
    def handle(payload: object, run: Run) -> None:
        run.accept()
        end.wait(60)

    assert (await send(worker, single())).status == 202
    end.set()
    await worker.stop()
    assert heard.calls == [("complete", run_id(), TOKEN)]


async def test_long_runs_are_bounded() -> None:
    heard = Heard()
    shift = Shift(heard, WorkerConfig(max_accepted=1))
    assert (await send(shift.worker, single(number=1))).status == 202
    refused = await send(shift.worker, single(number=2))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    await shift.finish()
    shift.end.clear()
    assert (await send(shift.worker, single(number=2))).status == 202
    await shift.finish()


async def test_accepting_twice_is_accepting_once() -> None:
    heard = Heard()
    worker = make_worker(client=heard, config=WorkerConfig(max_accepted=1))
    end = asyncio.Event()

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        run.accept()
        run.accept()
        await end.wait()
        run.accept()

    assert (await send(worker, single())).status == 202
    end.set()
    await worker.stop()
    assert heard.calls == [("complete", run_id(), TOKEN)]


async def test_a_run_given_up_before_it_was_answered_gives_its_place_back() -> None:
    heard = Heard()
    worker = make_worker(client=heard, config=WorkerConfig(max_accepted=1))
    end = asyncio.Event()
    requests: list[asyncio.Task[Answer]] = []

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        run.accept()
        if len(requests) == 1:
            requests[0].cancel()
        await end.wait()

    requests.append(asyncio.create_task(send(worker, single(number=1))))
    with pytest.raises(asyncio.CancelledError):
        await requests[0]
    requests.append(asyncio.create_task(send(worker, single(number=2))))
    assert (await requests[1]).status == 202
    end.set()
    await worker.stop()
    assert heard.calls == [("complete", run_id(2), TOKEN)]


async def test_a_long_run_of_a_batch_is_refused_with_advice() -> None:
    shift = Shift(Heard())
    answers = read_answers((await send(shift.worker, batch(element(1)))).body)
    assert answers is not None
    assert "set target.batch of this job to 1" in (answers[run_id(1)].error or "")


async def test_a_run_cannot_be_accepted_without_a_client() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        run.accept()

    answer = await send(worker, single())
    assert (answer.status, b"pass a client to the Worker" in answer.body) == (500, True)


async def test_a_long_run_that_does_not_end_before_the_stop_is_handed_back() -> None:
    heard = Heard()
    shift = Shift(heard, WorkerConfig(stop_timeout_ms=5))
    await send(shift.worker, single())
    await shift.worker.stop()
    assert shift.cancelled
    told = "the worker stopped before the run ended"
    assert heard.calls == [("fail", run_id(), TOKEN, told, True)]
