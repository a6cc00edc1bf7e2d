"""A shop that schedules in its own transactions: a reminder is there if and only if its order is.

Postgres, a shard, the worker and every callback are real; the database is thrown away at the end.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path

import asyncpg
from aiohttp import web
from msgspec import Struct

from wheelsched.client import Client
from wheelsched.config import ApiConfig, DispatchConfig, EgressConfig, EmbeddedConfig
from wheelsched.core.targets.egress import LOOPBACK
from wheelsched.daemon.database import open_operator
from wheelsched.daemon.up import Stack, UpConfig, open_stack
from wheelsched.worker import Run, Worker

REMIND = """
    SELECT wheelsched.schedule_at(
        'remind of ' || $1, clock_timestamp() + interval '3 seconds', $2,
        payload => jsonb_build_object('order', $1::text)
    )
"""


class Reminder(Struct):
    order: str


class CardDeclined(Exception):
    """the card was declined"""


class Shop:
    """Keeps orders, and reminds of them."""

    def __init__(self, connection: asyncpg.Connection, secret: str) -> None:
        self._connection = connection
        self.url = ""
        self.reminded: asyncio.Queue[str] = asyncio.Queue()
        self.worker = Worker(secrets=[secret])
        self.worker.job()(self.remind)

    async def remind(self, reminder: Reminder, run: Run) -> None:
        await self.reminded.put(reminder.order)

    async def order(self, name: str, *, is_paid: bool = True) -> None:
        """The order and its reminder, or neither."""
        async with self._connection.transaction():
            await self._connection.execute("INSERT INTO orders VALUES ($1)", name)
            await self._connection.execute(REMIND, name, self.url)
            if not is_paid:
                raise CardDeclined

    async def withdraw(self, name: str) -> bool:
        """Neither the order nor its reminder; gives whether that came in time."""
        async with self._connection.transaction():
            await self._connection.execute("DELETE FROM orders WHERE name = $1", name)
            cancel = "SELECT wheelsched.cancel('remind of ' || $1)"
            return bool(await self._connection.fetchval(cancel, name))


async def shop(stack: Stack, connection: asyncpg.Connection) -> None:
    trader = Shop(connection, stack.secret)
    runner = web.AppRunner(trader.worker.application("/hooks"), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    trader.url = "http://{}:{}/hooks".format(*runner.addresses[0])

    await trader.order("a kite")
    try:
        await trader.order("a yacht", is_paid=False)
    except CardDeclined:
        print("a yacht: rolled back, and its reminder with it")
    await trader.order("a drum")
    print(f"a drum: cancelled in time: {await trader.withdraw('a drum')}")
    print(f"reminded of {await asyncio.wait_for(trader.reminded.get(), 60)}")

    await connection.execute("SELECT wheelsched.schedule('audit', '61 * * * *', $1)", trader.url)
    async with Client(stack.url) as client:
        async with asyncio.timeout(60):
            jobs = [job async for job in client.list_jobs()]
            while any(job.state == "unplanned" for job in jobs):
                await asyncio.sleep(0.05)
                jobs = [job async for job in client.list_jobs()]
        for job in jobs:
            print(f"{job.name}: {job.state}{f', {job.error}' if job.error else ''}")
    print(f"other reminders: {trader.reminded.qsize()}")
    await runner.cleanup()


async def main(home: Path) -> None:
    config = UpConfig(
        embedded=EmbeddedConfig(home=home),
        api=ApiConfig(auth="loopback", port=0),
        dispatch=DispatchConfig(egress=EgressConfig(allow=LOOPBACK)),
    )
    async with open_stack(config) as stack:
        administration = await asyncpg.connect(stack.database_url)
        await administration.execute("CREATE ROLE shop; CREATE TABLE public.orders (name text)")
        await administration.execute("GRANT ALL ON public.orders TO shop")
        await administration.close()
        async with open_operator(stack.database_url) as operator:  # `wheelsched tenant grant …`
            (tenant,) = await operator.list_tenants()
            await operator.grant(tenant.tenant_id, "shop")
        as_shop = {"role": "shop"}
        connection = await asyncpg.connect(stack.database_url, server_settings=as_shop)
        await shop(stack, connection)
        await connection.close()


if __name__ == "__main__":
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o711)  # the server runs as another account when this one is root
    try:
        asyncio.run(main(directory / "home"))
    finally:
        shutil.rmtree(directory)
