"""Two workers without an open port share a queue. One stops in the middle, and nothing is lost.

Postgres, a shard, the API and the streams are real; the database is thrown away at the end.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from msgspec import Struct

from wheelsched.client import Client
from wheelsched.config import ApiConfig, EmbeddedConfig
from wheelsched.daemon.up import UpConfig, open_stack
from wheelsched.worker import Run, Worker

INVOICES = 60


class Invoice(Struct):
    customer: int


class Office:
    """The workers, and what they have done."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()
        self.by: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def worker(self, name: str) -> Worker:
        worker = Worker()

        @worker.job()
        async def send(invoice: Invoice, run: Run) -> None:
            await asyncio.sleep(0.02)
            self.sent[invoice.customer] += 1
            self.by[name] += 1
            self.changed.set()

        return worker

    async def has_sent(self, count: int) -> None:
        """Returns when that many customers have their invoice."""
        async with asyncio.timeout(100):
            while len(self.sent) < count:
                self.changed.clear()
                await self.changed.wait()


async def main(home: Path) -> None:
    office = Office()
    config = UpConfig(embedded=EmbeddedConfig(home=home), api=ApiConfig(auth="loopback", port=0))
    async with open_stack(config) as stack, Client(stack.url) as client:
        ada, ben = office.worker("Ada"), office.worker("Ben")
        working = [
            asyncio.create_task(each.run(stack.url, queues=["billing"], concurrency=2))
            for each in (ada, ben)
        ]
        async with asyncio.timeout(100):
            connected = 0
            while connected < 2:
                await asyncio.sleep(0.05)
                connected = sum(queue.workers for queue in (await client.list_queues()).items)
        for customer in range(INVOICES):
            await client.create_job(
                {
                    "name": f"invoice {customer}",
                    "schedule": "in 1s",
                    "target": {"queue": "billing"},
                    "payload": {"customer": customer},
                }
            )
        await office.has_sent(INVOICES // 2)
        await ben.stop()
        stopped_at = office.by["Ben"]
        await office.has_sent(INVOICES)
        await ada.stop()
        await asyncio.gather(*working)
    print(f"{len(office.sent)} customers have their invoice, each once: {_is_once(office)}")
    print(f"both have worked: {len(office.by) == 2}")
    print(f"Ben did nothing after he was stopped: {office.by['Ben'] == stopped_at}")


def _is_once(office: Office) -> bool:
    return set(office.sent.values()) == {1}


if __name__ == "__main__":
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o711)  # the server runs as another account when this one is root
    try:
        asyncio.run(main(directory / "home"))
    finally:
        shutil.rmtree(directory)
