"""pgqueuer: large batches, a pool of connections, uvloop, durable tables; see protocol.py.

Its tables are installed as they are by default: logged, and so as durable as everyone's here. A
job that was put off is found by polling, as often as `dequeue_timeout` says.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from protocol import Due, Starts, Stopwatch, in_parts, serve

BATCH = 1_000
POLLING = timedelta(milliseconds=20)


async def enqueue(url: str, dues: Sequence[Due], stopwatch: Stopwatch) -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    # It takes delays where the others take instants: those count from the server's present.
    server_now = "SELECT extract(epoch FROM clock_timestamp()) * 1e6"
    with stopwatch.running():
        for part in in_parts(dues):
            now_us = int(await connection.fetchval(server_now))
            await queries.enqueue(
                ["note"] * len(part),
                [b"%d" % due.number for due in part],
                [0] * len(part),
                [timedelta(microseconds=due.at_us - now_us) for due in part],
            )
    await connection.close()


async def work(url: str, starts: Starts) -> None:
    async with asyncpg.create_pool(url, min_size=5, max_size=20) as pool:
        queuer = PgQueuer(AsyncpgPoolDriver(pool))

        @queuer.entrypoint("note")
        async def note(job: Job) -> None:
            starts.note(int(job.payload))

        running = asyncio.create_task(queuer.run(dequeue_timeout=POLLING, batch_size=BATCH))
        ended = asyncio.create_task(starts.wait())
        await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
        queuer.shutdown.set()
        await asyncio.wait_for(running, 30)


if __name__ == "__main__":
    serve(enqueue, work, uvloop.run)
