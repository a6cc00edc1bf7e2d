"""Handlers under test, without a server."""

from dataclasses import dataclass

import pytest

from wheelsched.errors import InvalidSecret
from wheelsched.store.connections.connection import Connection
from wheelsched.worker import Gone, PostgresOnce, Reject, RetryLater, Run, Worker
from wheelsched.worker.postgres import Pool
from wheelsched.worker.testing import HandedOut


@dataclass
class Greeting:
    name: str


async def test_handlers_are_fed_without_a_server() -> None:
    worker = Worker()
    greeted: list[tuple[str, str | None]] = []

    @worker.job("greet")
    async def greet(greeting: Greeting, run: Run) -> None:
        if greeting.name == "":
            raise Reject("name is missing")
        if greeting.name == "busy":
            raise RetryLater(30)
        if greeting.name == "Grendel":
            raise Gone("the hall is closed")
        greeted.append((greeting.name, run.queue))

    client = worker.test_client()
    assert await client.hand_out("greet", {"name": "Ada"}) == HandedOut(outcome="succeeded")
    assert await client.hand_out("greet", {"name": ""}) == HandedOut(
        outcome="rejected", error="name is missing"
    )
    busy = await client.hand_out("greet", {"name": "busy"}, queue="hall")
    assert (busy.outcome, busy.retry_after_s) == ("failed", 30)
    assert await client.hand_out("greet", {"name": "Grendel"}) == HandedOut(
        outcome="gone", error="the hall is closed"
    )
    wrong = await client.hand_out("greet", {"name": 7})
    assert (wrong.outcome, "at `$.name`" in wrong.error) == ("rejected", True)
    assert (await client.hand_out("wave")).outcome == "failed"
    assert greeted == [("Ada", "test")]
    await worker.stop()


async def test_a_run_that_is_handed_out_twice_takes_effect_once() -> None:
    worker = Worker()
    seen: list[Run] = []

    @worker.job()
    def count(payload: object, run: Run) -> None:
        seen.append(run)

    client = worker.test_client()
    await client.hand_out("count")
    again = await client.hand_out("count", scheduled_at=seen[0].scheduled_at, attempt=2)
    assert (again.outcome, len(seen)) == ("succeeded", 1)
    await worker.stop()


async def test_a_worker_without_secrets_refuses_callbacks() -> None:
    worker = Worker()
    answer = await worker.receiver.receive({"webhook-id": "1"}, b"{}")
    assert answer.status == 401
    with pytest.raises(InvalidSecret):
        Worker([])


async def test_an_effect_in_the_users_transaction_happens_once(
    pool: Pool, observer: Connection
) -> None:
    await observer.execute("CREATE TABLE bills (number int)")
    worker = Worker(deduplicate=PostgresOnce(pool))
    runs: list[Run] = []

    @worker.job("bill")
    async def bill(number: int, run: Run) -> None:
        runs.append(run)
        await run.connection.execute("INSERT INTO bills VALUES ($1)", number)
        if run.attempt == 1:
            raise ConnectionError("the printer is away")

    client = worker.test_client()
    assert (await client.hand_out("bill", 7)).outcome == "failed"
    for attempt in (2, 3):
        again = await client.hand_out("bill", 7, scheduled_at=runs[0].scheduled_at, attempt=attempt)
        assert again.outcome == "succeeded"
    assert await observer.fetchval("SELECT count(*) FROM bills") == 1
    await worker.stop()
