"""A run that is delivered again while an attempt is executing, in virtual time."""

import asyncio

from tests.unit.worker.callbacks import (
    NOW_S,
    Request,
    batch,
    element,
    make_worker,
    run_id,
    send,
    single,
)

from wheelsched.testing import VirtualClock
from wheelsched.wire.callback import read_answers
from wheelsched.worker import MemoryOnce, WorkerConfig
from wheelsched.worker.answer import Answer

SECOND_NS = 1_000_000_000
TOKEN = 4294967297


def sent_again(number: int = 0, *, times: int = 1) -> Request:
    """A run as the next shard sends it, with a timeout of thirty seconds."""
    return single(
        number=number,
        headers={
            "wheelsched-timeout-ms": "30000",
            "wheelsched-fencing-token": str(TOKEN + times),
        },
    )


class Shift:
    """A worker that executes a run until the test ends it. Other runs end at once."""

    def __init__(self, **bounds: int) -> None:
        self.clock = VirtualClock(NOW_S * SECOND_NS)
        self.worker = make_worker(
            deduplicate=MemoryOnce(wait_ms=0, clock=self.clock),
            clock=self.clock,
            config=WorkerConfig(**bounds),
        )
        self.end = asyncio.Event()
        self.begun = 0
        self.error: Exception | None = None
        self.worker.job("report")(self._handle)
        self.worker.job("other")(lambda payload: None)

    async def _handle(self, payload: object) -> None:
        self.begun += 1
        if self.begun == 1:
            await self.end.wait()
            if self.error is not None:
                raise self.error

    async def send(self, request: Request) -> "asyncio.Task[Answer]":
        """Start a delivery and run ready tasks. The task's result is the response."""
        sending = asyncio.create_task(send(self.worker, request))
        await self.clock.run_ready()
        return sending


async def test_it_waits_for_the_end_of_the_first_and_is_done() -> None:
    shift = Shift()
    first = await shift.send(single())
    duplicate = await shift.send(sent_again())
    await shift.clock.advance(20 * SECOND_NS)
    assert not duplicate.done()
    shift.end.set()
    await shift.clock.advance(2 * SECOND_NS)
    assert ((await first).status, (await duplicate).status, shift.begun) == (200, 200, 1)


async def test_it_does_the_work_when_the_first_failed() -> None:
    shift = Shift()
    shift.error = ValueError("no paper")
    first = await shift.send(single())
    duplicate = await shift.send(sent_again())
    shift.end.set()
    await shift.clock.advance(2 * SECOND_NS)
    assert ((await first).status, (await duplicate).status, shift.begun) == (500, 200, 2)


async def test_it_comes_back_later_before_its_sender_gives_up() -> None:
    shift = Shift()
    first = await shift.send(single())
    duplicate = await shift.send(sent_again())
    await shift.clock.advance(26 * SECOND_NS)
    assert not duplicate.done()
    await shift.clock.advance(2 * SECOND_NS)
    answer = await duplicate
    assert (answer.status, answer.headers["retry-after"]) == (425, "1")
    shift.end.set()
    assert (await first).status == 200


async def test_in_a_batch_it_waits_for_as_long_as_its_own_timeout() -> None:
    shift = Shift()
    await shift.send(single())
    sending = await shift.send(batch(element(0, timeout_ms=10_000), element(1, timeout_ms=60_000)))
    await shift.clock.advance(8 * SECOND_NS)
    assert not sending.done()
    await shift.clock.advance(SECOND_NS)
    answers = read_answers((await sending).body)
    assert answers is not None
    assert [answers[run_id(number)].ok for number in range(2)] == [False, True]
    shift.end.set()


async def test_those_that_wait_take_no_place_from_others() -> None:
    shift = Shift(concurrency=2)
    await shift.send(single())
    duplicates = [await shift.send(sent_again()) for _ in range(5)]
    other = await shift.send(single(number=1, job_name="other"))
    assert (await other).status == 200
    shift.end.set()
    await shift.clock.advance(4 * SECOND_NS)
    assert {(await each).status for each in duplicates} == {200}


async def test_those_that_wait_are_bounded() -> None:
    shift = Shift(max_waiting=2)
    await shift.send(single())
    duplicates = [await shift.send(sent_again()) for _ in range(3)]
    assert [each.done() for each in duplicates] == [False, False, True]
    assert (await duplicates[2]).status == 503
    shift.end.set()
    await shift.clock.advance(2 * SECOND_NS)
    assert (await shift.send(single(number=1))).result().status == 200


async def test_one_that_is_overtaken_waits_no_longer() -> None:
    shift = Shift()
    await shift.send(single())
    second = await shift.send(sent_again(times=1))
    third = await shift.send(sent_again(times=2))
    await shift.clock.advance(2 * SECOND_NS)
    assert ((await second).status, third.done()) == (425, False)
    shift.end.set()
    await shift.clock.advance(2 * SECOND_NS)
    assert (await third).status == 200


async def test_a_worker_that_stops_hands_back_those_that_wait() -> None:
    shift = Shift(stop_timeout_ms=60_000)
    first = await shift.send(single())
    duplicate = await shift.send(sent_again())
    stopping = asyncio.create_task(shift.worker.stop())
    await shift.clock.advance(2 * SECOND_NS)
    assert (await duplicate).status == 503
    shift.end.set()
    assert (await first).status == 200
    await stopping
