"""Our dispatcher and our worker SDK: what the one means, the other understands."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from aiohttp import web
from msgspec import Struct
from tests.contract.delivery.conftest import OLD_SECRET, SECRET, World
from tests.ports import bound_socket

from wheelsched.core.outcome import Accepted, Failed, Outcome, Rejected, Succeeded
from wheelsched.core.outcome import Gone as GoneOutcome
from wheelsched.worker import Gone, Reject, RetryLater, Run, Worker


class Report(Struct):
    number: int


class Silent:
    """An API that is told of accepted runs, and is content."""

    def __init__(self) -> None:
        self.completed: list[tuple[str, int]] = []

    async def heartbeat(self, run_id: str, token: int) -> None: ...

    async def complete(self, run_id: str, token: int) -> None:
        self.completed.append((run_id, token))

    async def fail(self, run_id: str, token: int, error: str, *, retry: bool = True) -> None:
        raise AssertionError(error)


class Service:
    """A worker of ours on a socket. What a run does depends on its number."""

    def __init__(self) -> None:
        self.reports = Silent()
        self.worker = Worker([SECRET], client=self.reports)
        self.runs: list[Run] = []
        self.url = ""
        self.end = asyncio.Event()
        self.worker.job("weekly-report")(self._write)
        self.worker.job("Wöchentlich 100 %", long=True)(self._write_at_length)

    async def _write(self, report: Report, run: Run) -> None:
        self.runs.append(run)
        match report.number:
            case 1:
                raise ValueError("no paper")
            case 2:
                raise Reject("no customer")
            case 3:
                raise RetryLater(7)
            case 4:
                raise Gone("moved")

    async def _write_at_length(self, report: object, run: Run) -> None:
        self.runs.append(run)
        await self.end.wait()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    runner = web.AppRunner(service.worker.application("/hooks"))
    await runner.setup()
    await web.SockSite(runner, bound_socket()).start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks"
    yield service
    await runner.cleanup()


async def send(world: World, service: Service, number: int) -> Outcome:
    return await world.send(
        service.url, payload=b'{"number": %d}' % number, idempotency_key=f"key:{number}"
    )


async def test_each_outcome_arrives_as_it_was_meant(world: World, service: Service) -> None:
    assert await send(world, service, 0) == Succeeded(http_status=200)
    failed, rejected, later, gone = [await send(world, service, number) for number in range(1, 5)]
    assert isinstance(failed, Failed)
    assert failed.error.endswith("ValueError: no paper")
    assert isinstance(rejected, Rejected)
    assert rejected.error.endswith("no customer")
    assert isinstance(later, Failed)
    assert later.retry_after_us == 7_000_000
    assert isinstance(gone, GoneOutcome)
    assert isinstance(await world.send(service.url, payload=b"[]"), Rejected)
    assert isinstance(await world.send(service.url, job_name="unheard of"), Failed)


async def test_a_run_arrives_whole(world: World, service: Service) -> None:
    await send(world, service, 0)
    (run,) = service.runs
    assert run.job_id == world.job_id
    assert run.scheduled_at == datetime(2026, 11, 16, 14, tzinfo=UTC)
    assert (run.attempt, run.token, run.timeout_us) == (1, 7 << 32, 60_000_000)
    assert run.idempotency_key == "key:0"
    assert run.traceparent is not None


async def test_secrets_are_rotated_without_a_refusal(world: World, service: Service) -> None:
    both = await world.send(service.url, payload=b'{"number": 0}', secrets=(OLD_SECRET, SECRET))
    assert isinstance(both, Succeeded)
    foreign = await world.send(service.url, payload=b'{"number": 0}', secrets=(OLD_SECRET,))
    assert isinstance(foreign, Rejected)
    assert "401" in foreign.error


async def test_a_batch_is_understood_run_by_run(world: World, service: Service) -> None:
    route = world.route(service.url, batch=10)
    batch = [
        world.dispatcher.prepare(route, world.callback(number, payload=b'{"number": %d}' % number))
        for number in range(4)
    ]
    outcomes = await world.dispatcher.send(route, batch, world.begin)
    assert isinstance(outcomes, list)
    assert [type(outcome) for outcome in outcomes] == [Succeeded, Failed, Rejected, Failed]
    again = await world.dispatcher.send(route, batch[:1], world.begin)
    assert isinstance(again, list)
    assert [type(outcome) for outcome in again] == [Succeeded]
    assert len(service.runs) == 4


async def test_a_long_run_is_accepted(world: World, service: Service) -> None:
    outcome = await world.send(service.url, job_name="Wöchentlich 100 %", payload=b"{}")
    assert outcome == Accepted()
    service.end.set()
    await service.worker.stop()
    assert service.reports.completed == [(service.runs[0].run_id, 7 << 32)]
