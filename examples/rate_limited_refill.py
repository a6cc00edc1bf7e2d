"""A rate limiter for thousands of tenants: a bucket of tokens each, refilled by the wheel.

Only a bucket that has been drawn from has a timer. Idle tenants cost nothing, and nobody walks
over all of them every few milliseconds.
"""

import asyncio
from dataclasses import dataclass

from wheelsched.aio import AsyncWheel

TENANTS = 2_000
BURST = 5
REFILL_S = 0.05
SERVICE_S = 0.5


@dataclass
class Bucket:
    tokens: int = BURST
    served: int = 0
    refused: int = 0


class Limiter:
    def __init__(self, wheel: AsyncWheel[None]) -> None:
        self._wheel = wheel
        self.buckets = [Bucket() for _ in range(TENANTS)]

    def request(self, tenant: int) -> bool:
        """Take a token if there is one."""
        bucket = self.buckets[tenant]
        if not bucket.tokens:
            bucket.refused += 1
            return False
        if bucket.tokens == BURST:
            self._wheel.call_later(REFILL_S, self._refill, bucket)
        bucket.tokens -= 1
        bucket.served += 1
        return True

    def _refill(self, bucket: Bucket) -> None:
        bucket.tokens += 1
        if bucket.tokens < BURST:
            self._wheel.call_later(REFILL_S, self._refill, bucket)


async def main() -> None:
    async with AsyncWheel[None]() as wheel:
        limiter = Limiter(wheel)
        start_ns = wheel.now_ns()
        while wheel.now_ns() - start_ns < SERVICE_S * 1e9:
            for tenant in range(0, TENANTS, 2):
                limiter.request(tenant)
            await asyncio.sleep(0.01)
        elapsed_s = (wheel.now_ns() - start_ns) / 1e9
        timers = len(wheel)
        wheel.close()

    busy = limiter.buckets[::2]
    allowed = BURST + elapsed_s / REFILL_S
    print(f"{len(busy)} busy tenants of {TENANTS}, {timers} timers")
    print(f"served per tenant: {min(b.served for b in busy)} to {max(b.served for b in busy)}")
    print(f"none above its rate: {all(bucket.served <= allowed for bucket in busy)}")
    print(f"idle tenants still full: {all(b.tokens == BURST for b in limiter.buckets[1::2])}")


if __name__ == "__main__":
    asyncio.run(main())
