"""The counter: where clients ask for runs by hand, and ask again with the same key.

The API's own handlers and replays, each sending in a process of its own, which may die at any
statement; on the way there and back, requests and answers get lost.

Invariant: whoever hears nothing, or that the store was away, knows nothing; and is not wiser for a
refusal of a later sending, because an earlier one may have been done.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Result
from tests.sim.fates import Weather
from tests.sim.machine import Machine
from tests.sim.network import Line
from tests.sim.scene import Scene

from wheelsched.api.http.idempotency import IdempotencyKeys, seed_of
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery
from wheelsched.api.http.problems import problem_of
from wheelsched.api.resources.job_verbs import JobVerbs
from wheelsched.core.model import Job, parse_run_id
from wheelsched.errors import RequestKeyBusy, WheelschedError
from wheelsched.ports import Caller, KeyedRequest
from wheelsched.wire.run import BackfillRequest, RequestedAnswer, TriggerRequest

MS = 1_000_000
SENDINGS = 5
SERVER_ERROR = 500


class Asked(Struct, frozen=True, kw_only=True):
    """What a client knows at the end, and the runs that it was told of."""

    sent_us: int
    result: Result
    due_us: tuple[int, ...] = ()


class Counter:
    """The API, for what may be asked again."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = Random(random.getrandbits(64))
        self._weather = Weather()
        self._loss = 0.0
        self._keys = 0

    def fare(self, weather: Weather, loss: float) -> None:
        self._weather, self._loss = weather, loss

    async def trigger(self, job: Job) -> Asked:
        return await self._ask(job, TriggerRequest())

    async def backfill(self, job: Job, since_us: int, until_us: int) -> Asked:
        wanted = BackfillRequest(since=instant_of(since_us), until=instant_of(until_us))
        return await self._ask(job, wanted)

    async def _ask(self, job: Job, body: BackfillRequest | TriggerRequest) -> Asked:
        """Sends until there is an answer, or the client has had enough."""
        self._keys += 1
        key, sent_us = f"key-{self._keys}", self._scene.logbook.now_us()
        has_doubt = False
        for _ in range(SENDINGS):
            try:
                due_us = await self._send(job, body, key)
            except RequestKeyBusy:
                has_doubt = True
            except WheelschedError as error:
                if problem_of(error).status < SERVER_ERROR:
                    return Asked(sent_us=sent_us, result="unknown" if has_doubt else "failed")
                has_doubt = True
            else:
                if due_us is not None:
                    return Asked(sent_us=sent_us, result="ok", due_us=due_us)
                has_doubt = True
            await self._scene.clock.sleep(self._random.choice((5, 200, 1_000, 4_000)) * MS)
        return Asked(sent_us=sent_us, result="unknown")

    async def _send(
        self, job: Job, body: BackfillRequest | TriggerRequest, key: str
    ) -> tuple[int, ...] | None:
        """One sending: the due times of its runs, or None when nothing is heard of it."""
        luck = self._random.random()
        await self._travel()
        if luck < self._loss / 2:
            return None
        handling = asyncio.get_running_loop().create_task(self._handle(job, body, key))
        await asyncio.wait([handling])
        if handling.cancelled():
            return None  # the process has died
        answer = handling.result()
        await self._travel()
        return None if luck < self._loss else answer

    async def _handle(
        self, job: Job, body: BackfillRequest | TriggerRequest, key: str
    ) -> tuple[int, ...]:
        line = self._process()
        verbs, caller = JobVerbs(line.jobs, line.history), Caller(job.tenant_id, "client")

        async def work(begun: KeyedRequest) -> ApiResponse:
            call = Call(
                caller=caller,
                now_us=begun.begun_at_us,
                query=NoQuery(),
                body=body,
                path={"job_id": str(job.job_id)},
                seed=seed_of(caller, key),
            )
            handle = verbs.trigger if isinstance(body, TriggerRequest) else verbs.backfill
            return await handle(call)  # type: ignore[arg-type] # each takes its own body

        digest = sha256(msgspec.json.encode([str(job.job_id), body])).digest()
        response = await IdempotencyKeys(line.idempotency).run(caller, key, digest, work)
        assert isinstance(response.body, bytes)
        told = msgspec.json.decode(response.body, type=RequestedAnswer)
        return tuple(parse_run_id(run_id).due_us for run_id in told.run_ids)

    def _process(self) -> Line:
        line = Line(
            self._scene.store, self._scene.clock, Machine(self._scene.clock, 0), self._random
        )
        dies = self._random.random() < self._loss
        crash_in = self._random.randint(1, 5) if dies else None
        line.weather = replace(self._weather, crash_in=crash_in)
        return line

    async def _travel(self) -> None:
        await self._scene.clock.sleep(self._random.randint(1, 5) * MS)


def instant_of(at_us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
