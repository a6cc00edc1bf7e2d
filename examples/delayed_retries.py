"""Deliveries to an endpoint that fails: what failed waits in the wheel and comes back in a batch.

The sender sets the pace. While it is busy with one batch, everything else that is due waits in
the wheel; when the service stops, `close` hands back what was not sent.
"""

import asyncio
import random
from dataclasses import dataclass

from wheelsched.aio import AsyncWheel

MESSAGES = 200
MAX_ATTEMPTS = 5
FIRST_BACKOFF_S = 0.02


@dataclass
class Message:
    number: int
    attempts: int = 0


class Endpoint:
    """Refuses half of what it is sent."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.received: list[int] = []

    async def send(self, message: Message) -> bool:
        await asyncio.sleep(0)
        if self._source.random() < 0.5:
            return False
        self.received.append(message.number)
        return True


async def deliver(wheel: AsyncWheel[Message], endpoint: Endpoint) -> list[Message]:
    """Send every message, a batch at a time; return those that were given up."""
    given_up: list[Message] = []
    async for batch in wheel.batches(limit=50):
        sent = await asyncio.gather(*map(endpoint.send, batch))
        for message, arrived in zip(batch, sent, strict=True):
            message.attempts += 1
            if arrived:
                continue
            if message.attempts == MAX_ATTEMPTS:
                given_up.append(message)
            else:
                wheel.add_later(FIRST_BACKOFF_S * 2**message.attempts, message)
        if not len(wheel):
            return given_up
    return given_up


async def main() -> None:
    endpoint = Endpoint(random.Random(7))
    async with AsyncWheel[Message]() as wheel:
        for number in range(MESSAGES):
            wheel.add_later(0, Message(number))
        given_up = await deliver(wheel, endpoint)
    print(f"{len(endpoint.received)} messages delivered, each once: {no_duplicates(endpoint)}")
    print(f"{len(given_up)} given up after {MAX_ATTEMPTS} attempts")
    print(f"{MESSAGES - len(endpoint.received) - len(given_up)} lost")


def no_duplicates(endpoint: Endpoint) -> bool:
    return len(endpoint.received) == len(set(endpoint.received))


if __name__ == "__main__":
    asyncio.run(main())
