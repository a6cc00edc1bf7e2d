"""The workers of a simulation, and the road to them.

Invariant: a worker notes what it receives before it answers, and goes on with it whatever becomes
of the shard that sent it. Its temper is drawn for each request, within what its address says.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

import msgspec
from msgspec.structs import replace
from tests.checker.records import Answer, Arrival
from tests.sim.machine import Machine
from tests.sim.scene import Scene

from wheelsched.core.model import RunState
from wheelsched.core.outcome import Outcome, Succeeded, TransportFailure, classify
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.core.policies.retry import wait_us
from wheelsched.errors import StoreError
from wheelsched.ports import Callback, Caller, Ending, Prepared, Route, Settled
from wheelsched.testing import MemoryDispatcher
from wheelsched.testing.dispatcher import MemoryPrepared

MS = 1_000_000
SECOND = 1_000 * MS
TEMPERS = ("ok", "ok", "ok", "ok", "slow", "slow", "flaky", "hang", "accept", "silent", "gone")


class Workers:
    """All workers of all tenants. `temper` is the first word of an address."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = random
        self._busy: set[asyncio.Task[list[Outcome]]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self.is_calm = False  # everything succeeds at once

    def luck(self) -> float:
        return self._random.random()

    def receive(self, route: Route, callbacks: Sequence[Callback]) -> "asyncio.Task[list[Outcome]]":
        """Takes a request: whoever waits for the answer may go away."""
        task = asyncio.get_running_loop().create_task(self._handle(route, callbacks))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return task

    async def _handle(self, route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        temper = "ok" if self.is_calm else _temper(route.target.name)
        places = [self._note(route, callback) for callback in callbacks]
        await self._work(temper)
        answers = [self._answer(temper) for _ in callbacks]
        for place, callback, (answer, _) in zip(places, callbacks, answers, strict=True):
            self._scene.logbook.arrivals[place] = replace(
                self._scene.logbook.arrivals[place],
                answer=answer,
                answered_us=self._scene.logbook.now_us(),
            )
            if answer == "accepted":
                self._go_on(temper, route, callback, place)
        return [outcome for _, outcome in answers]

    def _note(self, route: Route, callback: Callback) -> int:
        payload = msgspec.json.decode(callback.payload)
        self._scene.logbook.arrivals.append(
            Arrival(
                job=str(callback.key.job_id),
                tenant=payload["tenant"],
                due_us=callback.key.due_us,
                scheduled_us=callback.scheduled_us,
                key=callback.idempotency_key,
                token=callback.token,
                attempt=callback.attempt,
                trigger=callback.trigger.value,
                url=route.target.name,
                mark=payload["mark"],
                at_us=self._scene.logbook.now_us(),
            )
        )
        return len(self._scene.logbook.arrivals) - 1

    async def _work(self, temper: str) -> None:
        random = self._random
        if self.is_calm:
            return
        match temper:
            case "slow":
                await self._scene.clock.sleep(random.randint(200, 6_000) * MS)
            case "hang" if random.random() < 0.5:
                await self._scene.clock.sleep(3_600 * SECOND)
            case _ if random.random() < 0.5:
                await self._scene.clock.sleep(random.randint(1, 40) * MS)

    def _answer(self, temper: str) -> tuple[Answer, Outcome]:
        luck = self._random.random()
        match temper:
            case "flaky" if luck < 0.3:
                return "failed", classify(503, now_us=0)
            case "flaky" if luck < 0.45:
                return "failed", classify(TransportFailure.CONNECTION_LOST, now_us=0)
            case "flaky" if luck < 0.5:
                return "rejected", classify(400, now_us=0)
            case "accept" | "silent" if luck < 0.8:
                return "accepted", classify(202, now_us=0)
            case "gone" if luck < 0.2:
                return "gone", classify(410, now_us=0)
            case _:
                return "ok", Succeeded(http_status=200)

    def _go_on(self, temper: str, route: Route, callback: Callback, place: int) -> None:
        task = asyncio.get_running_loop().create_task(
            self._report(temper, route.tenant_id, callback, place)
        )
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _report(self, temper: str, tenant_id: UUID, callback: Callback, place: int) -> None:
        """Heartbeats for a while, and then says how it ended, or never does."""
        caller = Caller(tenant_id, "worker")
        for _ in range(self._random.randint(0, 4)):
            await self._scene.clock.sleep(callback.timeout_us * 1_000 // 3)
            if not await self._scene.store.history.heartbeat(caller, callback.key, callback.token):
                return
        if temper == "silent" and self._random.random() < 0.5:
            return
        await self._scene.clock.sleep(self._random.randint(1, callback.timeout_us // 2_000) * MS)
        is_ok = self._random.random() < 0.7
        now_us = self._scene.database_us()
        ending = Ending(
            state=RunState.SUCCEEDED if is_ok else RunState.RETRYING,
            started_at_us=now_us,
            finished_at_us=now_us,
            retry_at_us=None if is_ok else now_us + wait_us(RetryPolicy(), 1, self._random),
        )
        if not is_ok and self._counted(callback) >= self._attempts_of(callback):
            ending = replace(ending, state=RunState.DEAD, retry_at_us=None)
        try:
            settled = Settled(callback.key, callback.token, ending)
            await self._scene.store.history.answer(caller, settled)
        except StoreError:
            return
        self._scene.logbook.arrivals[place] = replace(
            self._scene.logbook.arrivals[place],
            reported="ok" if is_ok else "failed",
            reported_us=self._scene.logbook.now_us(),
        )

    def _counted(self, callback: Callback) -> int:
        """The number of an attempt since its run was last retried by hand."""
        row = self._scene.store._tables.runs.get(callback.key)
        return callback.attempt - (0 if row is None else row.run.attempts_before)

    def _attempts_of(self, callback: Callback) -> int:
        """As the API has it: of a job that is gone nothing is tried again."""
        job = self._scene.store._tables.jobs.get(callback.key.job_id)
        return 1 if job is None else job.retry.max_attempts


def _temper(url: str) -> str:
    return url.removeprefix("http://").split("-")[0]


class Road(MemoryDispatcher):
    """The `Dispatcher` of one process."""

    def __init__(self, machine: Machine, workers: Workers) -> None:
        super().__init__(machine)
        self._machine = machine
        self._workers = workers
        self.is_connected = lambda: workers.luck() < 0.7

    async def carry(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        if self._machine.is_dead:
            raise asyncio.CancelledError
        callbacks = [
            prepared.callback for prepared in batch if isinstance(prepared, MemoryPrepared)
        ]
        if not begin():
            return None
        answered = self._workers.receive(route, callbacks)
        gone = asyncio.Event()
        answered.add_done_callback(lambda _: self._machine.post(gone.set))
        timeout = self._machine.alarm(gone.set)
        timeout_us = max(callback.timeout_us for callback in callbacks)
        timeout.set(self._machine.now_ns() + timeout_us * 1_000)
        try:
            await gone.wait()
        finally:
            timeout.close()
        if self._machine.is_dead:
            raise asyncio.CancelledError
        if not answered.done():
            return [classify(TransportFailure.TIMEOUT, now_us=0)] * len(callbacks)
        return answered.result()
