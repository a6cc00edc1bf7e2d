"""The scheduler of an application, on Postgres, and inside web frameworks."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import aiohttp
import asyncpg
import pytest
import uvicorn
from aiohttp import web
from fastapi import FastAPI
from msgspec import Struct
from starlette.applications import Starlette
from tests.proxy import Proxy
from tests.waiting import WAIT_LIMIT_S, until

from wheelsched import Scheduler
from wheelsched.daemon.database import open_operator
from wheelsched.errors import (
    InvalidDocument,
    InvalidSchedulerOption,
    JobNameTaken,
    RightMissing,
    SchedulerNotReady,
    SchemaTooOld,
    StoreUnavailable,
    TenantNotFound,
)
from wheelsched.store.connections.connection import Connection
from wheelsched.worker import Run


class Reminder(Struct):
    order: int


class Shop:
    """A scheduler on a database, and the orders that it was reminded of."""

    def __init__(self, url: str) -> None:
        self.scheduler = Scheduler(url, application="shop", migrate=True)
        self.reminded: asyncio.Queue[int] = asyncio.Queue()
        self.scheduler.task("remind")(self.remind)

    async def remind(self, payload: Reminder, run: Run) -> None:
        self.reminded.put_nowait(payload.order)

    async def next_order(self) -> int:
        return await asyncio.wait_for(self.reminded.get(), WAIT_LIMIT_S)


@pytest.fixture
async def shop(database: str) -> Shop:
    return Shop(database)


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database, command_timeout=60)
    await connection.execute("CREATE TABLE public.orders (number integer)")
    yield connection
    connection.terminate()


async def test_it_migrates_an_empty_database_on_request(empty_database: str) -> None:
    with pytest.raises(SchemaTooOld):
        await Scheduler(empty_database).start()
    shop = Shop(empty_database)
    async with shop.scheduler:
        await shop.scheduler.schedule("one", at="in 1s", task="remind", payload=Reminder(1))
        assert await shop.next_order() == 1


async def test_a_task_is_executed_and_its_run_succeeds(shop: Shop, connection: Connection) -> None:
    async with shop.scheduler:
        job_id = await shop.scheduler.schedule(
            "one", at="in 1s", task="remind", payload=Reminder(1)
        )
        assert await shop.next_order() == 1

        async def has_succeeded() -> bool:
            query = "SELECT state FROM wheelsched.runs WHERE job_id = $1"
            return bool(await connection.fetchval(query, job_id) == "succeeded")

        await until(has_succeeded)
        with pytest.raises(InvalidDocument):
            await shop.scheduler.schedule(
                "two", cron="61 * * * *", task="remind", payload=Reminder(2)
            )


async def test_a_job_of_a_transaction_that_commits_runs(shop: Shop, connection: Connection) -> None:
    async with shop.scheduler:
        async with connection.transaction():
            await connection.execute("INSERT INTO public.orders VALUES (1)")
            await shop.scheduler.schedule(
                "one", at="in 1s", task="remind", payload=Reminder(1), connection=connection
            )
        assert await shop.next_order() == 1


async def test_a_job_of_a_transaction_that_rolls_back_does_not_run(
    shop: Shop, connection: Connection
) -> None:
    async with shop.scheduler:
        transaction = connection.transaction()
        await transaction.start()
        await shop.scheduler.schedule(
            "one", at="in 1s", task="remind", payload=Reminder(1), connection=connection
        )
        await transaction.rollback()
        await shop.scheduler.schedule("two", at="in 2s", task="remind", payload=Reminder(2))
        assert await shop.next_order() == 2
        assert shop.reminded.empty()


async def test_a_job_is_cancelled_in_a_transaction(shop: Shop, connection: Connection) -> None:
    async with shop.scheduler:
        schedule, cancel = shop.scheduler.schedule, shop.scheduler.cancel
        await schedule("one", every="1h", task="remind", payload=Reminder(1))
        with pytest.raises(JobNameTaken):
            await schedule(
                "one", every="1h", task="remind", payload=Reminder(1), connection=connection
            )
        transaction = connection.transaction()
        await transaction.start()
        assert await cancel("one", connection=connection)
        await transaction.rollback()
        assert await cancel("one")
        assert not await cancel("one", connection=connection)


async def test_invalid_jobs_are_refused_before_the_transaction_is_lost(
    shop: Shop, connection: Connection
) -> None:
    async with shop.scheduler, connection.transaction():
        with pytest.raises(InvalidDocument):
            await shop.scheduler.schedule(
                "one", cron="61 * * * *", task="remind", payload=Reminder(1), connection=connection
            )
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_pool_has_no_transaction(shop: Shop, database: str) -> None:
    async with asyncpg.create_pool(database, min_size=1, max_size=2) as pool, shop.scheduler:
        mistakes: list[Any] = [pool, object()]
        for wrong in mistakes:
            with pytest.raises(InvalidSchedulerOption, match="expected a connection of asyncpg"):
                await shop.scheduler.schedule(
                    "one", at="in 1s", task="remind", payload=Reminder(1), connection=wrong
                )
            with pytest.raises(InvalidSchedulerOption, match="expected a connection of asyncpg"):
                await shop.scheduler.cancel("one", connection=wrong)


async def test_a_connection_of_a_pool_with_codecs_of_its_own(shop: Shop, database: str) -> None:
    async def use_codecs(connection: Connection) -> None:
        for kind, encode in (("json", json.dumps), ("jsonb", json.dumps), ("uuid", str)):
            decode = str if kind == "uuid" else json.loads
            await connection.set_type_codec(
                kind, schema="pg_catalog", encoder=encode, decoder=decode
            )

    async with (
        asyncpg.create_pool(database, init=use_codecs, min_size=1, max_size=1) as pool,
        shop.scheduler,
        pool.acquire() as connection,
    ):
        async with connection.transaction(isolation="serializable"):
            await shop.scheduler.schedule(
                "one", at="in 1s", task="remind", payload=Reminder(1), connection=connection
            )
        assert await shop.next_order() == 1


async def test_a_transaction_that_commits_after_the_due_time(
    shop: Shop, connection: Connection
) -> None:
    async with shop.scheduler:
        async with connection.transaction():
            await shop.scheduler.schedule(
                "one", at="in 10ms", task="remind", payload=Reminder(1), connection=connection
            )
            await connection.execute("SELECT pg_sleep(0.1)")
        assert await shop.next_order() == 1


async def test_a_role_without_a_tenant_is_told_what_is_missing(
    shop: Shop, connection: Connection
) -> None:
    await connection.execute("CREATE ROLE stranger_of_this_test")
    try:
        await connection.execute("SET ROLE stranger_of_this_test")
        async with shop.scheduler:
            with pytest.raises(RightMissing, match="tenant grant"):
                await shop.scheduler.schedule(
                    "one", at="in 1s", task="remind", payload=Reminder(1), connection=connection
                )
    finally:
        await connection.execute("RESET ROLE")
        await connection.execute("DROP ROLE stranger_of_this_test")


async def test_a_role_keeps_the_tenant_that_it_has(shop: Shop, database: str) -> None:
    async with shop.scheduler:
        pass
    async with shop.scheduler:
        pass
    async with open_operator(database) as operator:
        (granted,) = await operator.list_grants()
    assert granted.tenant == "local"


async def test_an_unknown_tenant_is_refused(database: str) -> None:
    with pytest.raises(TenantNotFound):
        await Scheduler(database, tenant_id=uuid4()).start()


async def test_a_database_that_is_away_does_not_hang_the_start() -> None:
    scheduler = Scheduler("postgresql://127.0.0.1:1/none", start_timeout_s=0.5)
    with pytest.raises(SchedulerNotReady, match="the database is unreachable"):
        await scheduler.start()


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[Proxy]:
    options = parse_qs(urlsplit(database).query)
    async with Proxy(f"{options['host'][0]}/.s.PGSQL.{options['port'][0]}") as proxy:
        yield proxy


async def test_it_goes_on_when_the_database_was_away(
    database: str, proxy: Proxy, connection: Connection
) -> None:
    """An outcome that cannot be written is written later, and later runs are executed."""
    shop = Shop(proxy.url(urlsplit(database).path.removeprefix("/")))
    may_end = asyncio.Event()

    @shop.scheduler.task("slow")
    async def slow(payload: None) -> None:
        shop.reminded.put_nowait(0)
        await may_end.wait()

    async with shop.scheduler:
        await shop.scheduler.schedule("slow", at="in 1s", task="slow")
        assert await shop.next_order() == 0
        proxy.is_refusing = True
        proxy.cut()
        may_end.set()
        await asyncio.sleep(1)
        proxy.heal()

        async def has_succeeded() -> bool:
            query = "SELECT bool_and(state = 'succeeded') FROM wheelsched.runs"
            return bool(await connection.fetchval(query))

        await until(has_succeeded)

        async def is_scheduled() -> bool:
            try:
                await shop.scheduler.schedule(
                    "one", at="in 1s", task="remind", payload=Reminder(1), if_exists="keep"
                )
            except StoreUnavailable:
                return False
            return True

        await until(is_scheduled)
        while await shop.next_order() != 1:  # the slow run, if its lease has ended meanwhile
            pass


async def test_an_embedded_database(home: Path) -> None:
    scheduler = Scheduler.embedded(home)
    ran = asyncio.Event()

    @scheduler.job("* * * * * *")
    async def tick() -> None:
        ran.set()

    async with scheduler:
        await asyncio.wait_for(ran.wait(), WAIT_LIMIT_S)


async def test_fastapi(shop: Shop) -> None:
    app = FastAPI(lifespan=shop.scheduler.lifespan)

    @app.post("/orders/{number}")
    async def order(number: int) -> None:
        await shop.scheduler.schedule(
            f"remind-{number}", at="in 1s", task="remind", payload=Reminder(number)
        )

    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="on", log_level="warning"))
    serving = asyncio.create_task(server.serve())

    async def has_started() -> bool:
        return server.started or serving.done()

    await until(has_started)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as client:
        async with client.post(f"http://127.0.0.1:{port}/orders/7") as response:
            assert response.status == 200
        assert await shop.next_order() == 7
    server.should_exit = True
    await asyncio.wait_for(serving, WAIT_LIMIT_S)


async def test_starlette(shop: Shop) -> None:
    app = Starlette(lifespan=shop.scheduler.lifespan)
    async with app.router.lifespan_context(app):
        await shop.scheduler.schedule("one", at="in 1s", task="remind", payload=Reminder(1))
        assert await shop.next_order() == 1


async def test_aiohttp(shop: Shop) -> None:
    app = web.Application()
    app.cleanup_ctx.append(shop.scheduler.cleanup_ctx)
    runner = web.AppRunner(app)
    await runner.setup()
    await shop.scheduler.schedule("one", at="in 1s", task="remind", payload=Reminder(1))
    assert await shop.next_order() == 1
    await runner.cleanup()
