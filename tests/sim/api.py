"""The API of a simulation: its own handlers, each request in a process of its own.

A process may die at any statement, be it before the commit or between the commit and the answer; on
the way there and back, requests and answers get lost.

Invariant: whoever hears nothing, or that the store was away, knows nothing.
"""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Result, Verb
from tests.sim.fates import Fate, Weather
from tests.sim.machine import Machine
from tests.sim.network import Line
from tests.sim.scene import Scene

from wheelsched.api.environment import Environment
from wheelsched.api.http.idempotency import IdempotencyKeys, seed_of
from wheelsched.api.http.operation import ApiResponse, Call, Handle, NoQuery, to_response
from wheelsched.api.http.problems import problem_of
from wheelsched.api.resources.dead import DeadRuns
from wheelsched.api.resources.job_verbs import JobVerbs
from wheelsched.api.resources.jobs import Jobs
from wheelsched.api.resources.runs import Runs
from wheelsched.api.resources.waiting import Waiting
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.errors import RequestKeyBusy, WheelschedError
from wheelsched.ports import Caller, KeyedRequest
from wheelsched.values.duration import SECOND

MS: Final = 1_000_000
SERVER_ERROR: Final = 500
KEY_TAKEOVER_US: Final = 3 * SECOND  # a minute in production: no client here waits that long
DEATHS: Final = 0.3  # of the processes, each at one of its first statements
WRITES: Final[Mapping[Verb, str]] = {  # the statement by which each verb does its work
    "create": "jobs.register",
    "edit": "jobs.edit",
    "pause": "jobs.pause",
    "resume": "jobs.resume",
    "delete": "jobs.delete",
    "trigger": "history.request",
    "backfill": "history.request",
    "cancel": "history.cancel",
    "retry": "history.retry",
    "redrive": "history.retry",
}


class Wish(Struct, frozen=True, kw_only=True):
    """A request as its client sends it, once or several times."""

    verb: Verb
    path: Mapping[str, str] = {}
    body: Any = None
    key: str | None = None


class Api:
    """Answers requests."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = random
        self._weather = Weather()
        self._loss = 0.0
        self.struck: set[tuple[str, Fate]] = set()  # statements of verbs, and what became of them

    def fare(self, weather: Weather, loss: float) -> None:
        """What becomes of requests, and of what the API asks of the store, from now on."""
        self._weather, self._loss = weather, loss

    async def send(self, caller: Caller, wish: Wish) -> tuple[Result, Any]:
        """One sending: what its client knows of it, and the answer, if there is one."""
        luck = self._random.random()
        await self._travel()
        if luck < self._loss / 2:
            return "unknown", None
        handling = asyncio.get_running_loop().create_task(self._handle(caller, wish))
        await asyncio.wait([handling])
        await self._travel()
        if handling.cancelled():
            return "unknown", None  # the process has died
        error = handling.exception()
        if luck < self._loss or isinstance(error, RequestKeyBusy):
            return "unknown", None
        if isinstance(error, WheelschedError):
            return ("failed" if problem_of(error).status < SERVER_ERROR else "unknown"), None
        return "ok", handling.result()

    async def _handle(self, caller: Caller, wish: Wish) -> Any:
        line = self._process(wish.verb)
        handle = self._handlers(line)[wish.verb]
        call = Call(
            caller=caller,
            now_us=self._scene.database_us(),
            query=NoQuery(),
            body=wish.body,
            path=wish.path,
        )
        if wish.key is None:
            response = to_response(await handle(call))
        else:
            seed = seed_of(caller, wish.key)

            async def work(begun: KeyedRequest) -> ApiResponse:
                keyed = replace(call, now_us=begun.begun_at_us, seed=seed, is_copy=begun.is_copy)
                return await handle(keyed)

            digest = sha256(msgspec.json.encode([wish.verb, wish.path, wish.body])).digest()
            keys = IdempotencyKeys(line.idempotency, KEY_TAKEOVER_US)
            response = await keys.run(caller, wish.key, digest, work)
        assert isinstance(response.body, bytes)
        return msgspec.json.decode(response.body)

    def _handlers(self, line: Line) -> dict[Verb, Handle]:
        environment = Environment(
            clock=self._scene.clock,
            now_us=self._scene.database_us,
            random=self._random,
            metrics=str,
        )
        jobs = Jobs(line.jobs, environment, NO_EXCEPTIONS)
        verbs = JobVerbs(line.jobs, line.history)
        runs = Runs(line.jobs, line.history, environment, Waiting(line.leases, NO_EXCEPTIONS))
        return {
            "create": jobs.create,
            "edit": jobs.edit,
            "delete": jobs.delete,
            "pause": verbs.pause,
            "resume": verbs.resume,
            "trigger": verbs.trigger,
            "backfill": verbs.backfill,
            "cancel": runs.cancel,
            "retry": runs.retry,
            "redrive": DeadRuns(line.jobs, line.history).redrive,
        }

    def _process(self, verb: Verb) -> Line:
        machine = Machine(self._scene.clock, 0)
        line = Line(self._scene.store, self._scene.clock, machine, self._random)
        dies = self._random.random() < max(self._loss, DEATHS)
        crash_in = self._random.randint(1, 4) if dies else None
        line.weather = replace(self._weather, crash_in=crash_in)
        line.struck = lambda statement, fate: self.struck.add((f"{verb}: {statement}", fate))
        return line

    async def _travel(self) -> None:
        await self._scene.clock.sleep(self._random.randint(1, 5) * MS)
