"""The floors under a read over REST: bare aiohttp, which answers every read with fixed bytes.

python read_floor.py PORT DIRECTORY [DATABASE_URL]

DIRECTORY has the two responses, `page` and `job`. With a database each request also fetches the
rows that the API would (of pages always the first), by the same statement as the same role with as
many connections, straight from an asyncpg pool; it does not look at them. Nothing is authenticated,
counted, decoded or encoded.
"""

import asyncio
import signal
import sys
from pathlib import Path
from uuid import UUID

import asyncpg
import uvloop
from aiohttp import web

from wheelsched.config import StoreConfig
from wheelsched.daemon.api import LOCAL_TENANT_ID
from wheelsched.ports import FIRST_JOB
from wheelsched.store.connections.connection import use_plain_values
from wheelsched.store.connections.database import Pool, session_of
from wheelsched.store.for_api.jobs import QUERIES

PAGE = 100
FILTERS = (None, None, "{}")


async def serve(port: int, directory: Path, database_url: str | None) -> None:
    page, job = (directory / "page").read_bytes(), (directory / "job").read_bytes()
    pool = None if database_url is None else await open_pool(database_url)

    async def list_jobs(_: web.Request) -> web.Response:
        if pool is not None:
            arguments = (LOCAL_TENANT_ID, *FIRST_JOB, *FILTERS, PAGE + 1, None)
            assert len(await pool.fetch(QUERIES["list_jobs"], *arguments)) > PAGE
        return web.Response(body=page, content_type="application/json")

    async def read_job(request: web.Request) -> web.Response:
        if pool is not None:
            job_ids = [UUID(request.match_info["job_id"])]
            assert await pool.fetchrow(QUERIES["read_jobs"], LOCAL_TENANT_ID, job_ids)
        return web.Response(body=job, content_type="application/json")

    async def ready(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/readyz", ready)
    app.router.add_get("/api/v1/jobs", list_jobs)
    app.router.add_get("/api/v1/jobs/{job_id}", read_job)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await runner.cleanup()
    if pool is not None:
        await pool.close()


async def open_pool(database_url: str) -> Pool:
    config = StoreConfig(url=database_url, role="api")
    return await asyncpg.create_pool(
        database_url,
        min_size=config.connections,
        max_size=config.connections,
        init=use_plain_values,
        server_settings=dict(session_of(config, config.command_timeout_ms).settings),
        reset=_keep_session,
    )


async def _keep_session(_: object) -> None:
    """Replaces the reset of a connection, a round trip."""


if __name__ == "__main__":
    port, directory, *database = sys.argv[1:]
    uvloop.run(serve(int(port), Path(directory), database[0] if database else None))
