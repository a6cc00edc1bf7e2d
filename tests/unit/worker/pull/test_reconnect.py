"""A worker whose stream ends goes on with another."""

import asyncio
from random import Random

from tests.api import machine_us
from tests.unit.worker.pull.conftest import Pulling
from tests.waiting import until

from wheelsched.api.app import build_app
from wheelsched.api.environment import Environment
from wheelsched.api.http.server import ApiServer
from wheelsched.core.outcome import Succeeded
from wheelsched.ports.work import Reported, WorkerOutcome
from wheelsched.testing import VirtualClock
from wheelsched.worker import Worker


async def test_a_worker_registers_again_when_its_stream_is_cut(pulling: Pulling) -> None:
    worker = Worker()

    @worker.job("report")
    async def handle(payload: object) -> None: ...

    async with pulling.running(worker):
        for _ in range(3):
            await pulling.registered()
            (subscription,) = pulling.work.subscriptions
            added = pulling.add()
            await pulling.finished(added)
            # Silence beyond the limit: the API cuts the connection.
            await pulling.apis[0].clock.advance(40_000_000_000)

            async def is_another(old: object = subscription) -> bool:
                return pulling.work.subscriptions not in ([], [old])

            await until(is_another)


async def test_a_worker_goes_elsewhere_when_its_process_stops(pulling: Pulling) -> None:
    worker = Worker()
    has_begun, go_on = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def handle(payload: object) -> None:
        has_begun.set()
        await go_on.wait()

    (one,) = pulling.apis
    environment = Environment(
        clock=VirtualClock(),
        now_us=machine_us,
        random=Random(7),
        metrics=lambda: "",
        work=pulling.work,
    )
    app = build_app(one.stores, environment, one.config)
    async with await ApiServer.start(app, one.config) as two:
        urls = [one.url, two.url]
        async with pulling.running(worker, url=urls):
            await pulling.registered()
            (added,) = pulling.add()
            await has_begun.wait()
            is_first = one.vitals.waiting > 0
            await (one.stop() if is_first else two.close())
            await pulling.registered()
            assert (environment if is_first else one).vitals.waiting == 1
            go_on.set()
            (again,) = pulling.add()
            await pulling.finished([added, again])
    assert (added.outcome, added.handed_out) == (Succeeded(), 1)


async def test_an_outcome_that_was_not_confirmed_is_sent_again(pulling: Pulling) -> None:
    """The answer to it was lost with the stream."""
    worker = Worker()

    @worker.job("report")
    async def handle(payload: object) -> None: ...

    finish = pulling.work.finish
    calls: list[int] = []

    async def finish_and_cut(tenant_id: object, outcomes: list[WorkerOutcome]) -> list[Reported]:
        calls.append(len(outcomes))
        answers = await finish(pulling.apis[0].tenant_id, outcomes)
        if len(calls) == 1:
            await pulling.apis[0].clock.advance(40_000_000_000)  # cut before the answer
        return answers

    pulling.work.finish = finish_and_cut  # type: ignore[method-assign,assignment]
    async with pulling.running(worker):
        (added,) = pulling.add()

        async def was_sent_twice() -> bool:
            return calls == [1, 1]

        await until(was_sent_twice)
    assert (added.outcome, added.handed_out) == (Succeeded(), 1)
