"""The clients while something is broken: each changes its own jobs, a few times in two seconds.

Invariant: what is asked for is right at any time, so that nothing about it is the client's fault.
Clients give their jobs the same names: a name is its tenant's own.
"""

import asyncio
from collections.abc import Callable
from random import Random

from tests.faults.client import MS, Client, every_second, once_at

VERBS = ("create",) * 3 + ("toggle", "edit", "trigger", "backfill", "delete", "cancel")
BUSY = 3
REST_S = (0.2, 1.0)  # there are two of them


class Trickle:
    """A client that asks for something again and again, as a seed decides."""

    def __init__(
        self, client: Client, url: str, random: Random, database_us: Callable[[], int]
    ) -> None:
        self._client = client
        self._url = url
        self._random = random
        self._database_us = database_us  # by which everything is due
        self._count = 0
        self._paused: set[str] = set()

    async def prepare(self) -> None:
        await self._client.create_all({f"busy-{n}": every_second(self._url) for n in range(BUSY)})

    async def run(self, stopped: asyncio.Event) -> None:
        """Until it is stopped. What was paused stays so if nobody knows how that ended."""
        while not stopped.is_set():
            await self._one()
            try:
                async with asyncio.timeout(self._random.uniform(*REST_S)):
                    await stopped.wait()
            except TimeoutError:
                continue

    async def _one(self) -> None:
        busy = [name for name in self._client.settled if name.startswith("busy-")]
        verb = self._random.choice(VERBS)
        once = [name for name in self._client.settled if name.startswith("new-")]
        if verb in ("delete", "cancel") and once:
            await getattr(self._client, verb)(once[-1])  # which is the likeliest to be due yet
            return
        if verb in ("create", "delete", "cancel") or not busy:
            self._count += 1
            ahead_us = self._random.randint(1_500_000, 4_000_000)
            await self._client.create(
                f"new-{self._count}", once_at(self._database_us() + ahead_us, self._url)
            )
            return
        name = self._random.choice(busy)
        match verb:
            case "toggle" if name in self._paused:
                await self._client.resume(name)
                self._paused.discard(name)
            case "toggle":
                await self._client.pause(name)
                self._paused.add(name)
            case "edit":
                await self._client.edit(name)
            case "backfill":
                until_us = self._database_us() // MS * MS
                await self._client.backfill(name, until_us - 5_000 * MS, until_us)
            case _:
                await self._client.trigger(name)
