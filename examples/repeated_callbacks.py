"""A worker whose callbacks come more than once, as after a crash or a lost answer: one effect each.

`sign_callback` plays the scheduler. The worker is real, and so is the socket between them.
"""

import asyncio
from datetime import UTC, datetime

import aiohttp
from aiohttp import web
from msgspec import Struct

from wheelsched.worker import Reject, Run, Worker
from wheelsched.worker.testing import sign_callback

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - nobody's


class Report(Struct):
    customer: int


class Reports:
    """Writes a report for each customer, and has trouble with the first attempt for number 3."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.worker = Worker(secrets=[SECRET])
        self.worker.job("weekly-report")(self.write)

    async def write(self, report: Report, run: Run) -> None:
        if report.customer == 0:
            raise Reject("there is no customer 0")
        if report.customer == 3 and run.attempt == 1:
            raise ConnectionError("the printer is away")
        self.written.append(report.customer)


async def main() -> None:
    reports = Reports()
    runner = web.AppRunner(reports.worker.application("/hooks/report"), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks/report"
    async with aiohttp.ClientSession() as session:
        for customer in range(4):
            for attempt in (1, 2, 3):
                callback = sign_callback(
                    "weekly-report",
                    {"customer": customer},
                    secret=SECRET,
                    scheduled_at=datetime(2026, 11, 16, 14, customer, tzinfo=UTC),
                    attempt=attempt,
                )
                async with session.post(
                    url, data=callback.body, headers=callback.headers
                ) as response:
                    said = await response.text()
                    print(f"customer {customer}, attempt {attempt}: {response.status} {said}")
    await runner.cleanup()
    print(f"12 callbacks, reports written for customers {reports.written}")


if __name__ == "__main__":
    asyncio.run(main())
