"""A shop with two instances, each with a scheduler of its own: every reminder goes out once.

Postgres and both instances are real; the database is thrown away at the end.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from wheelsched import Scheduler
from wheelsched.worker import Run

ORDERS = 40


class Reminder(Struct):
    order: int


class Shop:
    """What the instances have done."""

    def __init__(self) -> None:
        self.reminded: Counter[int] = Counter()
        self.by: Counter[str] = Counter()
        self.cleaned: set[datetime] = set()
        self.changed = asyncio.Event()

    def instance(self, name: str, home: Path) -> Scheduler:
        """The scheduler of one instance; both run the same code."""
        scheduler = Scheduler.embedded(home, application="shop")

        @scheduler.job("* * * * * *")
        async def clean_up(run: Run) -> None:
            self.cleaned.add(run.scheduled_at)
            self.changed.set()

        @scheduler.task("remind")
        async def remind(payload: Reminder, run: Run) -> None:
            self.reminded[payload.order] += 1
            self.by[name] += 1
            self.changed.set()

        return scheduler

    async def is_done(self) -> None:
        """Returns when all orders were reminded of, and the job has run three times."""
        async with asyncio.timeout(100):
            while len(self.reminded) < ORDERS or len(self.cleaned) < 3:
                self.changed.clear()
                await self.changed.wait()


async def main(home: Path) -> None:
    shop = Shop()
    ada, ben = shop.instance("Ada", home), shop.instance("Ben", home)
    async with ada, ben:
        when = datetime.now(UTC) + timedelta(seconds=2)
        for order in range(ORDERS):
            await ada.schedule(
                f"remind-{order}", at=when, task="remind", payload=Reminder(order=order)
            )
        await ada.schedule("remind-again", every="1h", task="remind", payload=Reminder(order=0))
        print(f"one reminder too many, cancelled in time: {await ben.cancel('remind-again')}")
        await shop.is_done()
    is_once = set(shop.reminded.values()) == {1}
    print(f"{len(shop.reminded)} orders, each reminded of once: {is_once}")
    print(f"the job that is declared in code ran in {len(shop.cleaned)} seconds")


if __name__ == "__main__":
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o711)  # the server runs as another account when this one is root
    try:
        asyncio.run(main(directory / "home"))
    finally:
        shutil.rmtree(directory)
