"""The helpers for users' tests of handlers."""

import asyncio
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook
from tests.unit.worker.callbacks import OTHER_SECRET, SECRET, make_worker
from tests.unit.worker.test_accepted import Heard

from wheelsched.worker import Gone, Reject, RetryLater, Run, Worker, verify
from wheelsched.worker.testing import Delivered, sign_callback

AT = datetime(2026, 11, 18, 9, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("raised", "delivered"),
    [
        (None, Delivered(outcome="succeeded", status=200)),
        (ValueError("x"), Delivered(outcome="failed", status=500, error="ValueError: x")),
        (Reject("no"), Delivered(outcome="rejected", status=422, error="no")),
        (Gone("over"), Delivered(outcome="gone", status=410, error="over")),
        (
            RetryLater(30, "later"),
            Delivered(outcome="failed", status=503, error="later", retry_after_s=30),
        ),
    ],
)
async def test_the_outcome_is_the_one_that_the_scheduler_reads(
    raised: Exception | None, delivered: Delivered
) -> None:
    worker = Worker([SECRET])

    @worker.job("report")
    async def handle(payload: object) -> None:
        if raised:
            raise raised

    assert await worker.test_client().deliver("report", {"a": 1}) == delivered


async def test_a_handler_sees_the_run_that_was_asked_for() -> None:
    worker = make_worker()  # in virtual time
    seen: list[Run] = []

    @worker.job()
    def handle(payload: dict[str, int], run: Run) -> None:
        seen.append(run)

    client = worker.test_client()
    await client.deliver("Bericht für März", {"a": 1}, scheduled_at=AT, attempt=3, timeout_s=1.5)
    (run,) = seen
    assert (run.job_name, run.scheduled_at, run.attempt) == ("Bericht für März", AT, 3)
    assert (bytes(run.payload), run.timeout_us) == (b'{"a":1}', 1_500_000)


async def test_the_same_time_is_the_same_run_and_every_other_delivery_a_new_one() -> None:
    worker = Worker([SECRET])
    attempts: list[int] = []

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        attempts.append(run.attempt)

    client = worker.test_client()
    for attempt in (1, 2):
        done = await client.deliver("report", scheduled_at=AT, attempt=attempt)
        assert done.outcome == "succeeded"
    assert attempts == [1]
    for _ in range(3):
        await client.deliver("report")
    assert attempts == [1, 1, 1, 1]


async def test_a_long_run_is_accepted() -> None:
    heard = Heard()
    worker = Worker([SECRET], client=heard)
    ended = asyncio.Event()

    @worker.job("report", long=True)
    async def handle(payload: object) -> None:
        await ended.wait()

    delivered = await worker.test_client().deliver("report")
    assert delivered == Delivered(outcome="accepted", status=202)
    ended.set()
    await worker.stop()
    assert [call[0] for call in heard.calls] == ["complete"]


def test_a_signed_callback_is_genuine_to_us_and_to_others() -> None:
    callback = sign_callback("report", {"a": 1}, secret=SECRET)
    assert verify(callback.headers, callback.body, SECRET).job_name == "report"
    assert Webhook(SECRET).verify(callback.body, callback.headers) == {"a": 1}
    with pytest.raises(Exception, match="signature"):
        verify(callback.headers, callback.body, OTHER_SECRET)
