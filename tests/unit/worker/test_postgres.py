"""Exactly-once effects in a real database, with connections cut at every step."""

import asyncio
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from tests.proxy import Proxy
from tests.unit.worker.callbacks import NOW_S, make_worker, send, single
from tests.waiting import until

from wheelsched.errors import PoolExhausted
from wheelsched.store.connections.connection import Connection
from wheelsched.testing import VirtualClock
from wheelsched.worker import PostgresOnce, Run, Worker
from wheelsched.worker import postgres as implementation
from wheelsched.worker.postgres import Pool

# asyncpg leaves connections that the server cut to the collector, which complains of them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
async def table_of_effects(observer: Connection) -> None:
    await observer.execute("CREATE TABLE effects (run_id text)")


class Ledger:
    """A worker whose effect is a row. A test may inject a fault after the write."""

    def __init__(self, pool: Pool, *, wait_ms: int = 60_000) -> None:
        self.clock = VirtualClock(NOW_S * 1_000_000_000)
        self.worker: Worker = make_worker(
            deduplicate=PostgresOnce(pool, wait_ms=wait_ms), clock=self.clock
        )
        self.calls = 0
        self.written, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.backend = 0
        self.worker.job("report")(self._handle)

    async def _handle(self, payload: object, run: Run) -> None:
        self.calls += 1
        await run.connection.execute("INSERT INTO effects VALUES ($1)", run.run_id)
        self.backend = await run.connection.fetchval("SELECT pg_backend_pid()")
        self.written.set()
        await self.go_on.wait()


async def effects(observer: Connection) -> int:
    count: int = await observer.fetchval("SELECT count(*) FROM effects")
    return count


async def test_a_run_that_comes_often_takes_effect_once(pool: Pool, observer: Connection) -> None:
    ledger = Ledger(pool)
    for _ in range(3):
        assert (await send(ledger.worker, single())).status == 200
    assert (await send(ledger.worker, single(number=1))).status == 200
    assert (ledger.calls, await effects(observer)) == (2, 2)


async def test_attempts_that_come_together_take_effect_once(
    pool: Pool, observer: Connection
) -> None:
    """Each on its own worker, like behind a load balancer. The first one creates the table."""
    ledgers = [Ledger(pool) for _ in range(4)]
    answers = await asyncio.gather(*(send(each.worker, single()) for each in ledgers))
    assert [each.status for each in answers] == [200] * 4
    assert (sum(each.calls for each in ledgers), await effects(observer)) == (1, 1)


async def test_a_connection_killed_between_the_effect_and_the_commit(
    pool: Pool, observer: Connection
) -> None:
    ledger = Ledger(pool)
    ledger.go_on.clear()
    attempt = asyncio.create_task(send(ledger.worker, single()))
    await ledger.written.wait()
    await observer.fetchval("SELECT pg_terminate_backend($1, 10000)", ledger.backend)
    ledger.go_on.set()
    assert (await attempt).status == 500
    assert await effects(observer) == 0

    assert (await send(ledger.worker, single())).status == 200
    assert (await send(ledger.worker, single())).status == 200
    assert (ledger.calls, await effects(observer)) == (2, 1)


async def test_a_worker_killed_after_the_commit_and_before_its_answer(
    pool: Pool, observer: Connection
) -> None:
    await send(Ledger(pool).worker, single())  # nobody hears the answer
    successor = Ledger(pool)
    assert (await send(successor.worker, single())).status == 200
    assert (successor.calls, await effects(observer)) == (0, 1)


# Lets a commit wait until the observer gives way.
WAITING_COMMIT = """
CREATE FUNCTION give_way() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER give_way AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION give_way();
SELECT pg_advisory_lock(1);
"""
WAITS = """
SELECT count(*) > 0 FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""


async def test_a_connection_cut_after_the_commit_was_sent(
    empty_database: str, observer: Connection
) -> None:
    """The effect was committed, but the worker does not know and reports a failure."""
    parts = urlsplit(empty_database)
    options = parse_qs(parts.query)
    await observer.execute(WAITING_COMMIT)
    async with (
        asyncio.timeout(60),
        Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy,
    ):
        url = f"postgresql://wheelsched:x@127.0.0.1:{proxy.port}{parts.path}?sslmode=disable"
        pool = await asyncpg.create_pool(url, min_size=0, max_size=1, command_timeout=60)
        ledger = Ledger(pool)
        attempt = asyncio.create_task(send(ledger.worker, single()))
        await until(lambda: observer.fetchval(WAITS))
        proxy.hold_answers()
        await observer.fetchval("SELECT pg_advisory_unlock(1)")
        await until(lambda: effects(observer))
        proxy.cut()
        assert (await attempt).status == 500
        assert (await send(ledger.worker, single())).status == 200
        pool.terminate()
    assert (ledger.calls, await effects(observer)) == (1, 1)


async def test_a_handler_that_raises_after_its_effect_has_none(
    pool: Pool, observer: Connection
) -> None:
    worker = make_worker(deduplicate=PostgresOnce(pool))

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        await run.connection.execute("INSERT INTO effects VALUES ('x')")
        if run.attempt == 1:
            raise ValueError("out of paper")

    assert (await send(worker, single())).status == 500
    assert await effects(observer) == 0
    assert (await send(worker, single(headers={"wheelsched-attempt": "2"}))).status == 200
    assert await effects(observer) == 1


async def test_a_handler_that_hides_a_failed_statement_has_failed(
    pool: Pool, observer: Connection
) -> None:
    """Postgres would silently roll back at the commit."""
    worker = make_worker(deduplicate=PostgresOnce(pool))

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        await run.connection.execute("INSERT INTO effects VALUES ('x')")
        if run.attempt == 1:
            with suppress(asyncpg.UndefinedTableError):
                await run.connection.execute("INSERT INTO nowhere VALUES ('x')")

    assert (await send(worker, single())).status == 500
    assert await effects(observer) == 0
    assert (await send(worker, single(headers={"wheelsched-attempt": "2"}))).status == 200
    assert await effects(observer) == 1


async def test_a_duplicate_waits_no_longer_than_it_should(pool: Pool, observer: Connection) -> None:
    patient, hasty = Ledger(pool), Ledger(pool, wait_ms=500)
    await send(patient.worker, single(number=1))  # creates the table
    patient.written.clear()
    patient.go_on.clear()
    first = asyncio.create_task(send(patient.worker, single()))
    await patient.written.wait()
    sending = asyncio.create_task(send(hasty.worker, single()))

    async def is_told() -> bool:
        await hasty.clock.advance(1_000_000_000)
        return sending.done()

    await until(is_told)
    duplicate = await sending
    assert (duplicate.status, duplicate.headers["retry-after"]) == (425, "1")
    assert pool.get_idle_size() + 1 == pool.get_size()  # none but the first's is held
    patient.go_on.set()
    assert (await first).status == 200
    assert (await send(patient.worker, single())).status == 200
    assert (hasty.calls, await effects(observer)) == (0, 2)


async def test_a_duplicate_asks_again_until_the_first_has_ended(
    pool: Pool, observer: Connection
) -> None:
    patient, hasty = Ledger(pool), Ledger(pool, wait_ms=100)
    patient.go_on.clear()
    first = asyncio.create_task(send(patient.worker, single()))
    await patient.written.wait()
    duplicate = asyncio.create_task(send(hasty.worker, single()))

    async def is_asleep() -> bool:
        return duplicate.done() or hasty.clock.next_alarm_ns() is not None

    async def look_again() -> None:
        await until(is_asleep)
        await hasty.clock.advance(2_000_000_000)

    for _ in range(3):
        await look_again()
    assert not duplicate.done()
    patient.go_on.set()
    assert (await first).status == 200
    while not duplicate.done():
        await look_again()
    assert (await duplicate).status == 200
    assert (hasty.calls, await effects(observer)) == (0, 1)


async def test_the_table_is_made_once_by_many_at_once(pool: Pool, observer: Connection) -> None:
    async def claim(number: int) -> bool:
        async with PostgresOnce(pool).once(str(number)) as claim:
            return claim.is_first

    assert all(await asyncio.gather(*map(claim, range(4))))
    assert await observer.fetchval("SELECT count(*) FROM wheelsched_once") == 4


async def test_an_account_that_may_not_make_tables_uses_the_one_that_is_there(
    empty_database: str, observer: Connection
) -> None:
    await observer.execute(implementation.TABLE)
    await observer.execute(
        "DO $$ BEGIN CREATE ROLE humble; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    await observer.execute("GRANT SELECT, INSERT, DELETE ON wheelsched_once TO humble")
    async with asyncpg.create_pool(
        empty_database, min_size=0, max_size=1, server_settings={"role": "humble"}
    ) as pool:
        worker = make_worker(deduplicate=PostgresOnce(pool))
        worker.job("report")(lambda payload: None)
        assert (await send(worker, single())).status == 200


async def test_a_pool_without_a_free_connection_has_a_name(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = PostgresOnce(pool)
    held = [await pool.acquire() for _ in range(4)]
    monkeypatch.setattr(implementation, "TIMEOUT_S", 0.05)
    with pytest.raises(PoolExhausted):
        async with once.once("key"):
            pass
    for connection in held:
        await pool.release(connection)


async def test_keys_of_long_ago_are_forgotten(
    pool: Pool, observer: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "CLAIMS_PER_CLEANUP", 2)
    ledger = Ledger(pool)
    await send(ledger.worker, single())
    await observer.execute(
        "INSERT INTO wheelsched_once VALUES ('old', now() - interval '101 days'),"
        " ('recent', now() - interval '99 days')"
    )
    await send(ledger.worker, single(number=1))
    assert await observer.fetchval("SELECT count(*) FROM wheelsched_once") == 3
    assert await observer.fetchval("SELECT count(*) FROM wheelsched_once WHERE key = 'old'") == 0


async def test_an_error_after_the_commit_does_not_fail_the_run(
    pool: Pool, observer: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "CLAIMS_PER_CLEANUP", 1)
    monkeypatch.setattr(implementation, "FORGET", "DELETE FROM nowhere WHERE $1 > $2")
    ledger = Ledger(pool)
    assert (await send(ledger.worker, single())).status == 200
    assert await effects(observer) == 1
