"""What every transport behind `Dispatcher` has to do, on asyncio's loop and on uvloop's."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from uuid import UUID, uuid4

import pytest
import uvloop
from tests.workers import Worker, running_worker

from wheelsched.config import DispatchConfig, EgressConfig
from wheelsched.core.model import HttpTarget, RunKey, Trigger
from wheelsched.core.outcome import Outcome
from wheelsched.core.targets.egress import LOOPBACK
from wheelsched.delivery.http.dispatcher import HttpDispatcher
from wheelsched.delivery.http.lookup import Lookup
from wheelsched.ports import Callback, Dispatcher, Prepared, Route

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
MINUTE_US = 60_000_000


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class World:
    """A dispatcher, and the words that the tests are told in."""

    def __init__(self, make: Callable[..., Dispatcher]) -> None:
        self._make = make
        self.now_us = time.time_ns() // 1_000
        self.tenant_id = uuid4()
        self.job_id = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
        self.dispatcher = self.make()
        self.begun = 0
        self.may_begin = True

    def make(
        self,
        *,
        allow: Sequence[str] = LOOPBACK,
        lookup: Lookup | None = None,
        **changes: object,
    ) -> Dispatcher:
        """Another dispatcher, which is used from now on."""
        config = DispatchConfig(egress=EgressConfig(allow=tuple(allow)), **changes)  # type: ignore[arg-type] # each by its name
        self.dispatcher = self._make(config, lambda: self.now_us, lookup=lookup)
        return self.dispatcher

    def callback(self, number: int = 0, **changes: object) -> Callback:
        scheduled_us = 1_794_837_600_000_000 + number * 1_000
        fields: dict[str, object] = {
            "key": RunKey(self.job_id, scheduled_us),
            "job_name": "weekly-report",
            "payload": b'{"report" : "weekly"}',
            "secrets": (SECRET,),
            "scheduled_us": scheduled_us,
            "send_at_us": self.now_us,
            "timeout_us": MINUTE_US,
            "attempt": 1,
            "token": (7 << 32) + number,
            "trigger": Trigger.SCHEDULE,
            "idempotency_key": f"{self.job_id}:{number}",
        }
        return Callback(**fields | changes)  # type: ignore[arg-type] # each by its name

    def route(self, url: str, **changes: object) -> Route:
        target = HttpTarget(url=url, **changes)  # type: ignore[arg-type] # each by its name
        return self.dispatcher.route(self.tenant_id, target)

    def begin(self) -> bool:
        self.begun += self.may_begin
        return self.may_begin

    async def send(self, url: str, **changes: object) -> Outcome:
        """Sends one callback."""
        route = self.route(url)
        prepared = self.dispatcher.prepare(route, self.callback(0, **changes))
        outcomes = await self.dispatcher.send(route, [prepared], self.begin)
        assert isinstance(outcomes, list)
        (outcome,) = outcomes
        return outcome

    def prepare_batch(self, url: str, size: int, **changes: object) -> tuple[Route, list[Prepared]]:
        route = self.route(url, batch=max(size, 2))
        return route, [
            self.dispatcher.prepare(route, self.callback(number, **changes))
            for number in range(size)
        ]

    async def send_batch(self, url: str, size: int, **changes: object) -> list[Outcome]:
        route, batch = self.prepare_batch(url, size, **changes)
        outcomes = await self.dispatcher.send(route, batch, self.begin)
        assert isinstance(outcomes, list)
        return outcomes


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made: list[HttpDispatcher] = []

    def make(config: DispatchConfig, now_us: Callable[[], int], **options: object) -> Dispatcher:
        made.append(HttpDispatcher(config, now_us, **options))  # type: ignore[arg-type] # as it is
        return made[-1]

    yield World(make)
    for dispatcher in made:
        await dispatcher.close()


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    async with running_worker() as running:
        yield running
