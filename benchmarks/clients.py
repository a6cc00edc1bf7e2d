"""Clients of the API that read and write, each at its own pace, in given stretches of time.

python clients.py URL COUNT PAUSE_MS FILE START_US-END_US...

In a process of their own and at a lower priority, since clients are other machines' work. At the
end it writes how often each status came back, and how long the answers took.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from random import Random

import aiohttp
import msgspec
import uvloop

from stack import now_us

JOBS = "/api/v1/jobs"
BULK = 50


class Seen(msgspec.Struct):
    """What clients got: answers by status, 0 for none at all, and how long each took."""

    statuses: dict[int, int]
    took_us: list[int]


class Client:
    """One client, with a few jobs of its own."""

    def __init__(self, number: int, session: aiohttp.ClientSession, seen: Seen) -> None:
        self._number = number
        self._session = session
        self._seen = seen
        self._random = Random(number)
        self._made = 0
        self._job_ids: list[str] = []

    async def work(self, pause_s: float, stretches: list[tuple[int, int]]) -> None:
        for start_us, end_us in stretches:
            await asyncio.sleep(max(start_us - now_us(), 0) / 1e6)
            while now_us() < end_us:
                await asyncio.sleep(self._random.expovariate(1 / pause_s))
                await self._ask_something()

    async def _ask_something(self) -> None:
        if not self._job_ids:
            await self._register()
            return
        job = f"{JOBS}/{self._random.choice(self._job_ids)}"
        match self._random.randrange(20):
            case 0 | 1 | 2:
                await self._register()
            case 3:
                documents = [self._document() for _ in range(BULK)]
                await self._ask("POST", f"{JOBS}/bulk", documents)
            case 4:
                await self._ask("PATCH", job, {"priority": self._random.randrange(100)})
            case 5:
                await self._ask("DELETE", f"{JOBS}/{self._job_ids.pop()}")
            case 6 | 7:
                await self._ask("GET", f"{job}/next?count=10")
            case 8 | 9:
                await self._ask("GET", f"{job}/runs")
            case 10 | 11 | 12:
                await self._ask("GET", f"{JOBS}?limit=20")
            case _:
                await self._ask("GET", job)

    async def _register(self) -> None:
        made = await self._ask("POST", JOBS, self._document())
        if made is not None:
            self._job_ids.append(made["job_id"])

    def _document(self) -> dict[str, object]:
        self._made += 1
        return {
            "name": f"client-{os.getpid()}-{self._number}-{self._made}",
            "schedule": f"2031-01-15T08:00:{self._made % 60:02}Z",
            "target": {"url": "https://example.org/hooks/report"},
            "payload": {"number": self._made},
        }

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, str] | None:
        begun = time.perf_counter()
        status, answer = 0, None
        try:
            async with self._session.request(method, path, json=body) as response:
                read = await response.read()
                status = response.status
                answer = msgspec.json.decode(read) if status == 201 else None
        except (aiohttp.ClientError, TimeoutError):
            pass
        statuses = self._seen.statuses
        statuses[status] = statuses.get(status, 0) + 1
        self._seen.took_us.append(int((time.perf_counter() - begun) * 1e6))
        return answer


async def run(
    url: str, count: int, pause_s: float, path: Path, stretches: list[tuple[int, int]]
) -> None:
    seen = Seen({}, [])
    async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=count)) as session:
        clients = [Client(number, session, seen) for number in range(count)]
        await asyncio.gather(*(client.work(pause_s, stretches) for client in clients))
    path.write_bytes(msgspec.json.encode(seen))


if __name__ == "__main__":
    os.nice(5)
    url, count, pause_ms, path, *written = sys.argv[1:]
    stretches = [(int(start), int(end)) for start, end in (each.split("-") for each in written)]
    uvloop.run(run(url, int(count), int(pause_ms) / 1e3, Path(path), stretches))
