"""Bulk registration over REST against a bare insert of the same rows, in one run.

make bench ONLY=api

A durable Postgres, the API in a process of its own, and clients that send bodies made beforehand.
The floor is a loop of asyncpg that sends arguments made beforehand to the statements that no
registration can do without: one insert of jobs, one of timers. All take turns call by call, so
that whatever else the machine does hits all of them. Alike are jobs that share their schedule, as
those of one import do; one-offs have a due time each.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import count
from uuid import uuid4

import aiohttp
import asyncpg
import msgspec
import pytest

from api_process import Spent, running_api
from report import Record, Target
from stack import durable_server
from wheelsched.store.schema.migrate import migrate

OURS = "api"
JOBS = int(os.environ.get("WHEELSCHED_BENCH_JOBS", "5000"))  # of one call
ROUNDS = int(os.environ.get("WHEELSCHED_BENCH_ROUNDS", "8"))
CLIENTS = 4
PATH = "/api/v1/jobs/bulk"
DUE = datetime(2031, 1, 15, 8, tzinfo=UTC)
NUMBERS = count()

A_JOB_NS = 50_000  # 20,000 a second

# What two cores could do if nobody else used them follows from the CPU time that was spent: a
# request is read on one core while the one before is written on the other.
TARGETS = [
    Target("alike, ns a job", "alike", JOBS, None, A_JOB_NS),
    Target("alike, ns a job on free cores", "alike, two free cores", JOBS, None, A_JOB_NS),
    Target("one-offs, ns a job", "one-offs", JOBS, None, A_JOB_NS),
    Target("one-offs, ns a job on free cores", "one-offs, two free cores", JOBS, None, A_JOB_NS),
    Target("alike, 4 clients, ns a job", f"alike, {CLIENTS} clients", JOBS, None, A_JOB_NS),
    Target("alike vs bare inserts", "alike", JOBS, "bare", 0.5),
]


DEFINITION = (
    '{"schedule":"0 9 * * 1","spec":{"kind":"cron","expression":"0 9 * * 1",'
    '"timezone":"America/New_York"},"anchor_us":1926230400000000,'
    '"target":{"url":"https://example.org/hooks/report","headers":{"x-team":"a"}},'
    '"payload":{"report":"weekly","number":%s},"misfire":{},"overlap":{},"retry":{},'
    '"timeout_us":120000000,"priority":0,"idempotency_key":"{{job_id}}:{{scheduled_at_unix}}"}'
)
INSERT_JOBS = """
    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, tags, created_at, updated_at
    )
    SELECT job_id, $6, 7, name, 'active', definition, tags, due_at, due_at
    FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::json[], $5::jsonb[])
        AS job (job_id, due_at, name, definition, tags)
"""
INSERT_TIMERS = """
    INSERT INTO timers (job_id, partition, version, due_at)
    SELECT job_id, 7, 1, due_at FROM unnest($1::uuid[], $2::timestamptz[]) AS timer (job_id, due_at)
"""


class Registered(msgspec.Struct):
    """What is read of an answer."""

    registered: int


REGISTERED = msgspec.json.Decoder(Registered)


def alike() -> bytes:
    """A body of jobs that differ by name and payload."""
    return _body("0 9 * * 1" for _ in range(JOBS))


def one_offs() -> bytes:
    """A body of jobs with a due time each."""
    dues = (DUE + timedelta(milliseconds=number) for number in range(JOBS))
    return _body(due.isoformat(timespec="milliseconds") for due in dues)


def _body(schedules: Iterable[str]) -> bytes:
    return msgspec.json.encode(
        [
            {
                "name": f"report-{next(NUMBERS)}",
                "schedule": schedule,
                "timezone": "America/New_York",
                "target": {"url": "https://example.org/hooks/report", "headers": {"x-team": "a"}},
                "payload": {"report": "weekly", "number": number},
                "tags": {"team": "a"},
            }
            for number, schedule in enumerate(schedules)
        ]
    )


class Bare:
    """A loop of asyncpg that inserts the rows of such jobs, and nothing else."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._tenant_id = uuid4()

    def arguments(self) -> list[object]:
        numbers = [next(NUMBERS) for _ in range(JOBS)]
        return [
            [uuid4() for _ in numbers],
            [DUE] * JOBS,
            [f"report-{number}" for number in numbers],
            [DEFINITION % (b"%d" % number).decode() for number in numbers],
            ['{"team":"a"}'] * JOBS,
            self._tenant_id,
        ]

    async def register(self, arguments: list[object]) -> None:
        async with self._connection.transaction():
            await self._connection.execute(INSERT_JOBS, *arguments)
            await self._connection.execute(INSERT_TIMERS, *arguments[:2])


class Clients:
    """Clients of the API that each send a body at once."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def register(self, bodies: list[bytes]) -> None:
        await asyncio.gather(*map(self._send, bodies))

    async def _send(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(PATH, data=BytesIO(body), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            assert REGISTERED.decode(await answer.read()).registered == JOBS


@dataclass
class Side:
    """One way to register, and what each of its calls has spent."""

    workload: str
    name: str
    calls: int  # at once
    spent: list[Spent] = field(default_factory=list)

    async def measure(self, now: Callable[[], Spent], work: Callable[[], Awaitable[None]]) -> None:
        before = now()
        await work()
        self.spent.append(now().since(before))

    def report(self, record: Record) -> None:
        jobs = JOBS * self.calls
        wall = sorted(each.wall for each in self.spent)
        record.add(self.workload, self.name, JOBS, wall[len(wall) // 2] / jobs * 1e9)
        record.add(f"{self.workload}, best", self.name, JOBS, wall[0] / jobs * 1e9)
        cpu = {
            part: sum(getattr(each, part) for each in self.spent) / len(self.spent) / jobs * 1e9
            for part in ("api", "server", "client")
        }
        for part, nanoseconds in cpu.items():
            record.add(f"{self.workload}, {part}'s CPU", self.name, JOBS, nanoseconds)
        two_cores = max(*cpu.values(), sum(cpu.values()) / 2)
        record.add(f"{self.workload}, two free cores", self.name, JOBS, two_cores)


@pytest.mark.timeout(600)
async def test_bulk(record: Record) -> None:
    record.targets = TARGETS
    with durable_server() as server:
        connection = await asyncpg.connect(
            server.url, server_settings={"search_path": "wheelsched"}
        )
        await migrate(connection)
        postmaster = await connection.fetchval(
            "SELECT split_part(pg_read_file('postmaster.pid'), chr(10), 1)::integer"
        )
        async with running_api(server.url) as api, aiohttp.ClientSession(api.url) as session:
            clients, bare = Clients(session), Bare(connection)
            sides = [
                Side("alike", OURS, 1),
                Side("one-offs", OURS, 1),
                Side(f"alike, {CLIENTS} clients", OURS, CLIENTS),
                Side("alike", "bare", 1),
            ]
            for number in range(ROUNDS + 1):
                for side in sides:
                    await take_turn(side, clients, bare, lambda: Spent.now(api, postmaster))
                if number == 0:  # everything is warm now
                    for side in sides:
                        side.spent.clear()
        await connection.close()
    for side in sides:
        side.report(record)


async def take_turn(side: Side, clients: Clients, bare: Bare, now: Callable[[], Spent]) -> None:
    if side.name == "bare":
        arguments = bare.arguments()
        await side.measure(now, lambda: bare.register(arguments))
        return
    make = one_offs if side.workload == "one-offs" else alike
    bodies = [make() for _ in range(side.calls)]
    await side.measure(now, lambda: clients.register(bodies))
