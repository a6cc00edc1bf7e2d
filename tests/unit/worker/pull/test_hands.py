"""The runs that a worker has in hand."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgspec
import pytest
from tests.waiting import until

from wheelsched.config import WorkerConfig
from wheelsched.testing import VirtualClock
from wheelsched.wire.queue import ClaimedRun, HeartbeatAnswer, HeartbeatItem, ReturnedItem
from wheelsched.worker.attempt import Resources
from wheelsched.worker.deduplication import MemoryOnce
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.handler import Handler
from wheelsched.worker.pull.hands import Hands


def claimed(number: int) -> ClaimedRun:
    return ClaimedRun(
        run_id=f"{UUID(int=number).hex}-1",
        job_id=UUID(int=number),
        job_name="report",
        queue="billing",
        scheduled_at="2026-11-18T09:00:00Z",
        attempt=1,
        fencing_token=number,
        idempotency_key=str(number),
        trigger="schedule",  # type: ignore[arg-type]
        timeout_ms=120_000,
        lease_expires_at="2026-11-18T09:00:05Z",
        payload=msgspec.Raw(b"{}"),
    )


@pytest.mark.parametrize("is_lost", [True, False])
async def test_the_thread_of_a_run_that_never_executed_goes_to_the_next(*, is_lost: bool) -> None:
    """The first run waits for another attempt of its own when it is cancelled."""
    once, clock = MemoryOnce(wait_ms=1), VirtualClock(0)
    called = threading.Event()

    def handle(payload: object) -> None:
        called.set()

    with ThreadPoolExecutor(1) as threads:
        resources = Resources(once, FencingCheck(), threads, clock)
        handler = Handler(handle)
        hands = Hands(lambda _: handler, resources, WorkerConfig(threads=1), 2)
        first, second = claimed(1), claimed(2)
        async with once.once(f"{first.job_id}/{first.idempotency_key}"):
            hands.take([first, second])

            async def is_waiting() -> bool:
                return not [task for task in asyncio.all_tasks() if task.get_name() == first.run_id]

            await until(is_waiting)
            await asyncio.sleep(0)  # its callbacks
            if is_lost:
                beat = HeartbeatItem(run_id=first.run_id, token=first.fencing_token)
                answer = HeartbeatAnswer(run_id=first.run_id, held=False, cancel=False)
                hands.hear([beat], [answer])
            else:
                hands.cancel([ReturnedItem(run_id=first.run_id, token=first.fencing_token)])

            async def has_ended() -> bool:
                return hands.is_empty

            await until(has_ended)
    assert called.is_set()
