"""A worker whose callbacks come more than once, as after a crash or a lost answer: one effect each.

The scheduler is played by `callback`, which signs as it does. The worker is real, and so is the
socket between them.
"""

import asyncio
import base64
import hashlib
import hmac
import time

import aiohttp
from aiohttp import web
from msgspec import Struct

from wheelsched.worker import Reject, Run, Worker

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - nobody's
JOB_ID = "018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f"


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


def signature(key: str, now_s: str, signed: bytes) -> str:
    secret = base64.b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.digest(secret, f"{key}.{now_s}.".encode() + signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def callback(customer: int, attempt: int) -> tuple[bytes, dict[str, str]]:
    """The request of one attempt of one run; the key is the same for all of them."""
    body = b'{"customer": %d}' % customer
    key, now_s = f"{JOB_ID}:{customer}", str(int(time.time()))
    headers = {
        "wheelsched-run-id": f"{JOB_ID.replace('-', '')}-{customer}",
        "wheelsched-job-id": JOB_ID,
        "wheelsched-job-name": "weekly-report",
        "wheelsched-scheduled-at": "2026-11-16T14:00:00Z",
        "wheelsched-attempt": str(attempt),
        "wheelsched-fencing-token": str(attempt),
        "wheelsched-trigger": "schedule",
        "wheelsched-timeout-ms": "120000",
    }
    return body, headers | {
        "wheelsched-signature": signature(key, now_s, "\n".join(headers.values()).encode()),
        "webhook-id": key,
        "webhook-timestamp": now_s,
        "webhook-signature": signature(key, now_s, body),
    }


async def main() -> None:
    reports = Reports()
    runner = web.AppRunner(reports.worker.application("/hooks/report"), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks/report"
    async with aiohttp.ClientSession() as session:
        for customer in range(4):
            for attempt in (1, 2, 3):
                body, headers = callback(customer, attempt)
                async with session.post(url, data=body, headers=headers) as response:
                    said = await response.text()
                    print(f"customer {customer}, attempt {attempt}: {response.status} {said}")
    await runner.cleanup()
    print(f"12 callbacks, reports written for customers {reports.written}")


if __name__ == "__main__":
    asyncio.run(main())
