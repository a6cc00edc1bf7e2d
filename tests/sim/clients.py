"""The clients of a simulation: they register jobs, change their mind, and note what they know.

Invariant: a request is noted with what its client has heard, which may be less than what was done.
"""

from collections.abc import Awaitable, Callable
from random import Random
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from tests.checker.records import Definition, Request, Result, Verb
from tests.sim.counter import Asked, Counter
from tests.sim.fates import Weather
from tests.sim.scene import Scene
from tests.sim.wishes import SECOND_US, draw_definition, draw_schedule, written

from wheelsched.core.model import HttpTarget, Job, JobState, Target
from wheelsched.core.policies.policy import (
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.errors import StoreError
from wheelsched.ports import Acknowledged, Caller, Deleted, Registration, Tenant
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.testing.tables import MemoryTables

MS = 1_000_000


class Clients:
    """Everybody who asks for something."""

    letter = "t"  # with which the names of their tenants begin

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._tables: MemoryTables = scene.store._tables  # a client would list them
        self._random = random
        self._known: dict[UUID, tuple[Job, Definition]] = {}
        self._marks = 0
        self._tenants = [UUID(int=number) for number in range(1, random.randint(2, 3))]
        self._counter = Counter(scene, random)
        self._loss = 0.0  # how likely it is that an answer, or a request, gets lost

    def fare(self, weather: Weather, loss: float) -> None:
        """What becomes of requests, and of what the API asks of the store, from now on."""
        self._loss = loss
        self._counter.fare(weather, loss)

    async def begin(self, jobs: int) -> None:
        for number, tenant_id in enumerate(self._tenants):
            tenant = Tenant(tenant_id=tenant_id, name=f"{self.letter}{number}", created_at_us=0)
            await self._scene.store.tenants.create("test", tenant)
        for _ in range(jobs):
            await self.create()

    async def act(self) -> None:
        """Asks for something."""
        verbs: list[Callable[[], Awaitable[None]]] = [
            self.create,
            self.edit,
            self.edit,
            self.reschedule,
            self.pause,
            self.pause,
            self.resume,
            self.resume,
            self.delete,
            self.trigger,
            self.trigger,
            self.backfill,
            self.cancel,
            self.cancel,
        ]
        await self._random.choice(verbs)()

    async def create(self) -> None:
        tenant_id = self._random.choice(self._tenants)
        job_id = UUID(int=self._random.getrandbits(128), version=4)
        definition = self._draw(job_id)
        job = self._job(job_id, tenant_id, definition)
        due_us = self._first_us(job)
        self._known[job_id] = (job, definition)
        await self._ask(
            "create",
            job,
            lambda: self._scene.store.jobs.register(
                Caller(tenant_id, "client"), [Registration(job, due_us)]
            ),
            definition=definition,
        )

    async def edit(self) -> None:
        """Changes where a job goes and what it brings, not when it is due."""
        job, definition = self._pick() or (None, None)
        if job is None or definition is None:
            return
        definition = replace(definition, mark=self._mark())
        changed = replace(
            self._job(job.job_id, job.tenant_id, definition),
            spec=job.spec,
            schedule=job.schedule,
            anchor_us=job.anchor_us,
            version=job.version + 1,
            state=job.state,
        )
        await self._edit(changed, definition, None, is_rescheduled=False)

    async def reschedule(self) -> None:
        job, definition = self._pick() or (None, None)
        if job is None or definition is None:
            return
        definition = replace(
            definition,
            schedule=draw_schedule(self._random, self._scene.database_us(), self._scene.zone),
            mark=self._mark(),
        )
        changed = self._job(job.job_id, job.tenant_id, definition)
        due_us = self._first_us(changed)
        if due_us is None:
            return
        state = JobState.PAUSED if job.state is JobState.PAUSED else JobState.ACTIVE
        changed = replace(changed, version=job.version + 1, state=state)
        await self._edit(changed, definition, due_us, is_rescheduled=True)

    async def _edit(
        self, job: Job, definition: Definition, due_us: int | None, *, is_rescheduled: bool
    ) -> None:
        self._known[job.job_id] = (job, definition)
        await self._ask(
            "edit",
            job,
            lambda: self._scene.store.jobs.edit(
                Caller(job.tenant_id, "client"), job, due_us, is_rescheduled=is_rescheduled
            ),
            definition=definition,
            is_rescheduled=is_rescheduled,
        )

    async def pause(self) -> None:
        if (picked := self._pick()) is not None:
            caller = Caller(picked[0].tenant_id, "client")
            await self._ask(
                "pause", picked[0], lambda: self._scene.store.jobs.pause(caller, picked[0].job_id)
            )

    async def resume(self) -> None:
        paused = [
            job
            for job in self._tables.jobs.values()
            if job.state is JobState.PAUSED and job.job_id in self._known
        ]
        if paused:
            job = self._random.choice(paused)
            caller = Caller(job.tenant_id, "client")
            due_us = self._first_us(job)
            await self._ask(
                "resume", job, lambda: self._scene.store.jobs.resume(caller, job.job_id, due_us)
            )

    async def delete(self) -> None:
        if (picked := self._pick()) is not None:
            caller = Caller(picked[0].tenant_id, "client")
            await self._ask(
                "delete", picked[0], lambda: self._scene.store.jobs.delete(caller, picked[0].job_id)
            )

    async def trigger(self) -> None:
        if (picked := self._pick()) is not None:
            asked = await self._counter.trigger(picked[0])
            self._note_asked("trigger", picked[0], asked, due_us=(asked.due_us or (None,))[0])

    async def backfill(self) -> None:
        if (picked := self._pick()) is not None:
            now_us = self._scene.database_us()
            until_us = now_us - now_us % 1_000 - self._random.randint(0, 5_000) * 1_000
            since_us = until_us - self._random.randint(1, 20_000) * 1_000
            asked = await self._counter.backfill(picked[0], since_us, until_us)
            self._note_asked(
                "backfill",
                picked[0],
                asked,
                since_us=since_us,
                until_us=until_us,
                filled_us=asked.due_us,
            )

    def _note_asked(self, verb: Verb, job: Job, asked: Asked, **noted: object) -> None:
        self._scene.logbook.requests.append(
            Request(
                verb=verb,
                job=str(job.job_id),
                tenant=str(job.tenant_id),
                sent_us=asked.sent_us,
                answered_us=self._scene.logbook.now_us(),
                result=asked.result,
                **noted,  # type: ignore[arg-type] # the fields of a request
            )
        )

    async def cancel(self) -> None:
        live = [
            row.run
            for row in self._tables.runs.values()
            if row.run.state in ("armed", "retrying") and row.run.job_id in self._known
        ]
        if live:
            run = self._random.choice(live)
            job = self._tables.jobs.get(run.job_id)
            if job is not None:
                caller = Caller(job.tenant_id, "client")
                await self._ask(
                    "cancel",
                    job,
                    lambda: self._scene.store.history.cancel(caller, run.key),
                    due_us=run.due_us,
                )

    async def _ask(
        self,
        verb: Verb,
        job: Job,
        do: Callable[[], Awaitable[object]],
        **noted: object,
    ) -> None:
        """Sends a request, and notes what comes back."""
        sent_us = self._scene.logbook.now_us()
        luck = self._random.random()
        result: Result = "ok"
        answer: object = None
        await self._scene.clock.sleep(self._random.randint(1, 5) * MS)
        if luck < self._loss / 2:
            result = "unknown"
        else:
            try:
                answer = await do()
            except StoreError:
                result = "failed"
            await self._scene.clock.sleep(self._random.randint(1, 5) * MS)
            if luck < self._loss:
                result = "unknown"
        if verb == "create" and answer:  # the keys that were refused
            result = "failed"
        self._scene.logbook.requests.append(
            Request(
                verb=verb,
                job=str(job.job_id),
                tenant=str(job.tenant_id),
                sent_us=sent_us,
                answered_us=self._scene.logbook.now_us(),
                result=result,
                in_time=verb == "cancel" and answer is True,
                too_late=_too_late(answer),
                **noted,  # type: ignore[arg-type] # the fields of a request
            )
        )

    def _pick(self) -> tuple[Job, Definition] | None:
        """A job as it is now, as a client that has just read it would know it."""
        jobs = [job for job in self._tables.jobs.values() if job.job_id in self._known]
        if not jobs:
            return None
        job = self._random.choice(jobs)
        mark = msgspec.json.decode(job.payload)["mark"]
        definition = self._known[job.job_id][1]
        return job, definition if definition.mark == mark else self._read(job, definition)

    def _read(self, job: Job, definition: Definition) -> Definition:
        """The definition that a lost edit has left in place."""
        asked = [
            request.definition
            for request in self._scene.logbook.requests
            if request.job == str(job.job_id) and request.definition is not None
        ]
        mark = msgspec.json.decode(job.payload)["mark"]
        return next((one for one in asked if one.mark == mark), definition)

    def _job(self, job_id: UUID, tenant_id: UUID, definition: Definition) -> Job:
        now_us = self._scene.database_us()
        schedule = definition.schedule
        expression, anchor_us = written(schedule), schedule.anchor_us or now_us
        payload = {"mark": definition.mark, "tenant": str(tenant_id)}
        return Job(
            job_id=job_id,
            tenant_id=tenant_id,
            name=job_id.hex,
            schedule=Raw(msgspec.json.encode(expression)),
            spec=parse(
                expression,
                timezone=schedule.timezone,
                jitter=f"{schedule.jitter_us // 1_000}ms",
                now_us=min(now_us, schedule.at_us or now_us),
            ),
            anchor_us=anchor_us,
            target=self._target(job_id, definition),
            payload=Raw(msgspec.json.encode(payload)),
            misfire=MisfirePolicy(
                policy=OnMisfire(definition.misfire),
                grace_us=definition.grace_us,
                max_missed=definition.max_missed,
            ),
            overlap=OverlapPolicy(policy=OnOverlap(definition.overlap)),
            retry=RetryPolicy(max_attempts=definition.max_attempts, max_us=4 * SECOND_US),
            timeout_us=definition.timeout_us,
            created_at_us=now_us,
            updated_at_us=now_us,
        )

    def _draw(self, job_id: UUID) -> Definition:
        return draw_definition(
            self._random, job_id, self._mark(), self._scene.database_us(), self._scene.zone
        )

    def _target(self, job_id: UUID, definition: Definition) -> Target:
        return HttpTarget(url=definition.url, batch=1 + 4 * (job_id.int % 4 == 0))

    def _first_us(self, job: Job) -> int | None:
        schedule = compile_schedule(job.spec, job.job_id, job.anchor_us)
        return schedule.next_after(self._scene.database_us())

    def _mark(self) -> int:
        self._marks += 1
        return self._marks


def _too_late(answer: object) -> tuple[int, ...]:
    if isinstance(answer, Acknowledged | Deleted):
        return tuple(key.due_us for key in answer.too_late)
    return ()
