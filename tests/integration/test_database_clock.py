"""The clock against a real server, which stands on this host: its time is the host's."""

import asyncio
import time

from tests.postgres import Connect

from wheelsched.clock import DatabaseClock, SystemClock
from wheelsched.core.offset import ClockSample

SAMPLES = 20


async def test_the_time_is_the_servers_within_the_error(database: str, connect: Connect) -> None:
    connection = await connect(database)

    async def read_clock() -> ClockSample:
        sent_ns = inner.now_ns()
        now_us: int = await connection.fetchval(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )
        return ClockSample(sent_ns, now_us, inner.now_ns())

    inner = SystemClock()
    clock = DatabaseClock(inner, await read_clock())
    for _ in range(SAMPLES):
        assert not clock.add_sample(await read_clock())
        before_ns = time.time_ns()
        now_ns = clock.now_ns()
        after_ns = time.time_ns()
        error_ns = clock.error_us * 1_000
        assert before_ns - error_ns <= now_ns <= after_ns + error_ns

    rung = asyncio.Event()
    alarm = clock.alarm(rung.set)
    when_us = clock.now_us() + 20_000
    alarm.set(when_us * 1_000)
    await asyncio.wait_for(rung.wait(), 60)
    alarm.close()
    assert (await read_clock()).database_us >= when_us - clock.error_us
