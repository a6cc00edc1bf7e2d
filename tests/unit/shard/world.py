"""A world for the pipeline: any number of shards on one in-memory store, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Self
from uuid import UUID

from msgspec import Raw
from tests.unit.shard.store_link import StoreLink

from wheelsched.clock import DatabaseClock
from wheelsched.config import ShardConfig
from wheelsched.core.model import HttpTarget, Job, QueueTarget, Run, RunKey, RunState
from wheelsched.core.offset import ClockSample
from wheelsched.core.outcome import Outcome
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.delivery.dispatchers import Dispatchers
from wheelsched.delivery.queue.dispatcher import QueueDispatcher
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import Callback, Caller, Registration, Route, Tenant
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.shard.service import Environment, Shard
from wheelsched.testing import MemoryStore, VirtualClock
from wheelsched.testing.dispatcher import Handler, MemoryDispatcher, succeed
from wheelsched.values.duration import SECOND

START_US = 1_800_000_000 * SECOND  # a full minute, and hour


class World:
    """Times are in seconds since the start."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = VirtualClock(10**15)
        self._started_ns = self.clock.now_ns()
        self.store = MemoryStore(self.now_us)
        self.link = StoreLink(self.store)
        self.random = Random(seed)
        self.dispatcher = MemoryDispatcher(self.clock, self._handle)
        self.handler: Handler = succeed
        self.config = ShardConfig()
        self.arrived: list[tuple[float, Callback]] = []
        self.tenant_id = UUID(int=1)
        self.caller = Caller(self.tenant_id, "test")
        self.shards: dict[str, tuple[Shard, asyncio.Task[None]]] = {}
        self.links: dict[str, StoreLink] = {}  # of each shard
        self.queues: dict[str, QueueDispatcher] = {}  # of each shard

    def now_us(self) -> int:
        return START_US + (self.clock.now_ns() - self._started_ns) // 1_000

    @property
    def now_s(self) -> float:
        return (self.now_us() - START_US) / SECOND

    async def __aenter__(self) -> Self:
        await self.add_tenant(self.tenant_id, "first")
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in tuple(self.shards):
            await self.kill(name)

    async def add_tenant(self, tenant_id: UUID, name: str, weight: int = 1) -> Caller:
        tenant = Tenant(tenant_id=tenant_id, name=name, weight=weight, created_at_us=self.now_us())
        await self.store.tenants.create("test", tenant)
        return Caller(tenant_id, "test")

    def start(self, name: str = "a", config: ShardConfig | None = None) -> Shard:
        """Starts a shard."""
        link = self.links[name] = self.link.for_process()
        queues = self.queues[name] = QueueDispatcher(self.clock)
        around = Environment(
            stores=link,
            listen=link.listen,
            validate=partial(judge_draft, rules=NO_EXCEPTIONS),
            dispatcher=Dispatchers(self.dispatcher, queues),
            machine=self.clock,
            clock=DatabaseClock(self.clock, self._sample()),
            random=self.random,
        )
        shard = Shard(around, config or self.config)
        self.shards[name] = (shard, asyncio.get_running_loop().create_task(shard.run()))
        return shard

    def _sample(self) -> ClockSample:
        now_ns = self.clock.now_ns()
        return ClockSample(sent_ns=now_ns, database_us=self.now_us(), received_ns=now_ns)

    async def kill(self, name: str = "a") -> None:
        """Ends a shard as the loss of its machine does: its lease and its connections stay."""
        _, task = self.shards.pop(name)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def crash(self, name: str = "a") -> None:
        """Ends a process: its lease stays, and the kernel closes its connections."""
        await self.kill(name)
        self.links[name].connection.close()

    async def stop(self, name: str = "a") -> None:
        """Asks a shard to stop, and waits for its end."""
        shard, task = self.shards.pop(name)
        shard.stop()
        while not task.done():
            await self.advance(0.1)
        task.result()

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(int(seconds * 1_000_000_000))
        for _, task in self.shards.values():
            if task.done():
                task.result()

    async def register(self, schedule: str, name: str = "job", **fields: object) -> Job:
        return (await self.register_many([schedule], name, **fields))[0]

    async def register_many(
        self, schedules: Sequence[str], name: str = "job", **fields: object
    ) -> list[Job]:
        """Registers jobs; `+5` is a one-off five seconds from the start."""
        caller = fields.pop("caller", self.caller)
        assert isinstance(caller, Caller)
        registrations = [
            self._registration(schedule, f"{name}-{number}", caller, fields)
            for number, schedule in enumerate(schedules)
        ]
        assert await self.store.jobs.register(caller, registrations) == set()
        return [registration.job for registration in registrations]

    def _registration(
        self, schedule: str, name: str, caller: Caller, fields: dict[str, object]
    ) -> Registration:
        now_us = self.now_us()
        if schedule.startswith("+"):
            schedule = self.iso(float(schedule[1:]))
        spec = parse(schedule, timezone="UTC", now_us=now_us)
        url = fields.pop("url", "http://worker.example/hook")
        batch = fields.pop("batch", 1)
        queue = fields.pop("queue", None)
        assert isinstance(url, str)
        assert isinstance(batch, int)
        assert queue is None or isinstance(queue, QueueTarget)
        job = Job(
            job_id=UUID(int=self.random.getrandbits(128), version=4),
            tenant_id=caller.tenant_id,
            name=name,
            schedule=Raw(b'"' + schedule.encode() + b'"'),
            spec=spec,
            anchor_us=now_us,
            target=queue or HttpTarget(url=url, batch=batch),
            created_at_us=now_us,
            updated_at_us=now_us,
            **fields,  # type: ignore[arg-type]
        )
        fields |= {"url": url, "batch": batch, "queue": queue}
        first_us = compile_schedule(spec, job.job_id, now_us).next_after(now_us)
        return Registration(job, first_us)

    def iso(self, seconds: float) -> str:
        instant = datetime.fromtimestamp(START_US // SECOND, UTC) + timedelta(seconds=seconds)
        return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    async def _handle(self, route: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        self.arrived += [(self.now_s, callback) for callback in callbacks]
        return await self.handler(route, callbacks)

    @property
    def times(self) -> list[float]:
        """When callbacks arrived."""
        return [round(at_s, 3) for at_s, _ in self.arrived]

    @property
    def keys(self) -> Counter[RunKey]:
        """How often each run arrived."""
        return Counter(callback.key for _, callback in self.arrived)

    async def runs(self, job: Job) -> list[Run]:
        """The history of a job, oldest first."""
        caller = Caller(job.tenant_id, "test")
        return (await self.store.history.list_runs(caller, job.job_id, 1_000))[::-1]

    async def states(self, job: Job) -> list[RunState]:
        return [run.state for run in await self.runs(job)]
