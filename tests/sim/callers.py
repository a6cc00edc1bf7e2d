"""Callers: clients of the API that send again whatever they hear nothing of, with a key or without.

They also retry what is dead or cancelled, run by run or all of a job.

Invariant: a caller has one request in hand for a job at a time, until nothing of it can arrive any
more. A request is noted once, however often it was sent, if sending it again changes nothing more;
otherwise each sending is.
"""

from random import Random
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Definition, Request, Result, Verb
from tests.sim.api import Api, Wish
from tests.sim.counter import instant_of
from tests.sim.network import LATEST_MS
from tests.sim.scene import Scene
from tests.sim.wishes import document_of, draw_definition, draw_schedule, expression_of

from wheelsched.core.model import Job, JobState, Run, RunState, format_run_id, parse_run_id
from wheelsched.ports import Caller, Tenant
from wheelsched.testing.tables import MemoryTables
from wheelsched.wire.jobs import ResumeRequest
from wheelsched.wire.run import BackfillRequest, RedriveRequest, TriggerRequest

MS = 1_000_000
SECOND_US = 1_000_000
CALLER = Caller(UUID(int=2_000), "caller")
SENDINGS = 4
PAUSES_MS = (5, 200, 1_000, 3_500)  # between two sendings
REST_US = 3 * SECOND_US  # before the calm, within which whatever is late arrives
TEMPERS = ("ok", "ok", "slow", "flaky", "flaky", "hang", "accept", "gone")
REPEATABLE: tuple[Verb, ...] = ("edit", "pause", "resume", "delete", "cancel")
VERBS = (
    ("create", "edit", "reschedule", "pause", "resume", "delete", "trigger", "backfill")
    + ("cancel",) * 4
    + ("retry",) * 8
    + ("redrive",) * 3
)


class Heard(Struct, frozen=True, kw_only=True):
    """What a caller knows of a request, or of one sending."""

    sent_us: int
    answered_us: int
    result: Result
    answer: Any = None
    is_repeated: bool = False


class Callers:
    """All of them, of one tenant."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = random
        self._tables: MemoryTables = scene.store._tables  # a client would list them
        self._definitions: dict[UUID, dict[int, Definition]] = {}  # of each job, by mark
        self._in_hand: set[UUID] = set()
        self._numbers = 0
        self.api = Api(scene, random)
        self.until_us = 0  # when the calm begins

    async def begin(self, jobs: int) -> None:
        tenant = Tenant(tenant_id=CALLER.tenant_id, name="caller", created_at_us=0)
        await self._scene.store.tenants.create("test", tenant)
        for _ in range(jobs):
            await self.create()

    async def act(self) -> None:
        """One request, until its end."""
        verb = self._random.choice(VERBS)
        if verb == "create":
            await self.create()
            return
        job, run = self._pick(verb)
        if job is None:
            return
        self._in_hand.add(job.job_id)
        try:
            await self._change(verb, job, run)
        finally:
            self._in_hand.discard(job.job_id)

    async def create(self) -> None:
        number = self._number()
        name = f"called-{number}"
        definition = self._draw(number)
        document = document_of(name, CALLER.tenant_id, definition)
        heard = await self._ask("create", body=msgspec.json.encode(document))
        made = [
            job.job_id
            for job in self._tables.jobs.values()
            if job.tenant_id == CALLER.tenant_id and job.name == name
        ]
        for each in heard:
            told = None if each.answer is None else UUID(each.answer["job_id"])
            job_id = told or next((one for one in made if one not in self._definitions), None)
            if job_id is not None:
                self._definitions[job_id] = {number: definition}
                self._note("create", job_id, each, definition=definition)

    async def _change(self, verb: str, job: Job, run: Run | None) -> None:
        match verb:
            case "edit" | "reschedule":
                await self._edit(job, is_rescheduled=verb == "reschedule")
            case "backfill":
                await self._backfill(job)
            case "redrive":
                for each in await self._ask(verb, body=RedriveRequest(job_id=job.job_id)):
                    self._note(verb, job.job_id, each, filled_us=_told(each))
            case "trigger":
                for each in await self._ask(verb, job, TriggerRequest()):
                    self._note(verb, job.job_id, each, due_us=next(iter(_told(each)), None))
            case "pause" | "resume" | "delete":
                body = ResumeRequest() if verb == "resume" else None
                for each in await self._ask(verb, job, body):
                    self._note(verb, job.job_id, each, too_late=_too_late(each))
            case "cancel" | "retry" if run is not None:
                await self._cancel_or_retry(verb, run)

    async def _cancel_or_retry(self, verb: Verb, run: Run) -> None:
        for each in await self._ask(verb, path={"run_id": format_run_id(run.key)}):
            in_time = verb == "cancel" and each.answer is not None and each.answer["in_time"]
            self._note(verb, run.job_id, each, due_us=run.due_us, in_time=in_time)

    async def _edit(self, job: Job, *, is_rescheduled: bool) -> None:
        number = self._number()
        known = self._definitions[job.job_id]
        definition = replace(known[_mark(job)], mark=number)
        patch: dict[str, object] = {"payload": {"mark": number, "tenant": str(job.tenant_id)}}
        if is_rescheduled:
            before = definition.schedule
            schedule = draw_schedule(self._random, self._scene.database_us(), self._scene.zone)
            if (expression_of(before), before.timezone) == (
                expression_of(schedule),
                schedule.timezone,
            ):
                return
            definition = replace(definition, schedule=schedule)
            patch |= {
                "schedule": expression_of(schedule),
                "timezone": schedule.timezone,
                "jitter": f"{schedule.jitter_us // 1_000}ms",
            }
        known[number] = definition
        for each in await self._ask("edit", job, msgspec.json.encode(patch)):
            self._note(
                "edit",
                job.job_id,
                each,
                definition=definition,
                is_rescheduled=is_rescheduled,
                too_late=_too_late(each),
            )

    async def _backfill(self, job: Job) -> None:
        now_us = self._scene.database_us()
        until_us = now_us - now_us % 1_000 - self._random.randint(0, 5_000) * 1_000
        since_us = until_us - self._random.randint(1, 20_000) * 1_000
        body = BackfillRequest(since=instant_of(since_us), until=instant_of(until_us))
        for each in await self._ask("backfill", job, body):
            self._note(
                "backfill",
                job.job_id,
                each,
                since_us=since_us,
                until_us=until_us,
                filled_us=_told(each),
            )

    async def _ask(
        self, verb: Verb, job: Job | None = None, body: Any = None, path: Any = None
    ) -> list[Heard]:
        """Sends until there is an answer, or the caller has had enough."""
        is_keyed = verb not in ("edit", "delete") and self._random.random() < 0.6
        wish = Wish(
            verb=verb,
            path=path or ({} if job is None else {"job_id": str(job.job_id)}),
            body=body,
            key=f"call-{self._number()}" if is_keyed else None,
        )
        now_us, heard = self._scene.logbook.now_us, list[Heard]()
        for _ in range(self._random.randint(1, SENDINGS)):
            sent_us = now_us()
            result, answer = await self.api.send(CALLER, wish)
            heard.append(Heard(sent_us=sent_us, answered_us=now_us(), result=result, answer=answer))
            pause_ms = self._random.choice(PAUSES_MS)
            if result != "unknown" or now_us() + pause_ms * 1_000 > self.until_us - REST_US:
                break
            await self._scene.clock.sleep(pause_ms * MS)
        if any(each.result == "unknown" for each in heard):
            await self._scene.clock.sleep((LATEST_MS + 200) * MS)
        return [_as_one(heard)] if is_keyed or verb in REPEATABLE else heard

    def _pick(self, verb: str) -> tuple[Job | None, Run | None]:
        """A job that nobody has in hand, and a run of it, as a client that lists them finds it."""
        jobs = {
            job_id: job
            for job_id, job in self._tables.jobs.items()
            if job_id in self._definitions
            and job_id not in self._in_hand
            and (verb != "resume" or job.state is JobState.PAUSED)
        }
        states = {
            "cancel": (RunState.ARMED, RunState.RETRYING),
            "retry": (RunState.DEAD, RunState.CANCELLED),
            "redrive": (RunState.DEAD,),
        }.get(verb)
        if states is None:
            return (self._random.choice(list(jobs.values())) if jobs else None), None
        runs = [
            row.run
            for key, row in self._tables.runs.items()
            if key.job_id in jobs and row.run.state in states
        ]
        if not runs:
            return None, None
        run = self._random.choice(runs[-8:])
        return jobs[run.job_id], run

    def _draw(self, number: int) -> Definition:
        """Of a worker that fails often, so that there is something to retry."""
        now_us, zone = self._scene.database_us(), self._scene.zone
        definition = draw_definition(self._random, UUID(int=number), number, now_us, zone)
        temper = self._random.choice(TEMPERS)
        return replace(
            definition,
            url=f"http://{temper}-called{number}.example/hook",
            max_attempts=self._random.choice((1, 1, 2)),
        )

    def _note(self, verb: Verb, job_id: UUID, heard: Heard, **noted: object) -> None:
        self._scene.logbook.requests.append(
            Request(
                verb=verb,
                job=str(job_id),
                tenant=str(CALLER.tenant_id),
                sent_us=heard.sent_us,
                answered_us=heard.answered_us,
                result=heard.result,
                is_repeated=heard.is_repeated,
                **noted,  # type: ignore[arg-type] # the fields of a request
            )
        )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers


def _as_one(heard: list[Heard]) -> Heard:
    """Whoever is refused after a doubt is not wiser: an earlier sending may have been done."""
    first, last = heard[0], heard[-1]
    is_doubtful = last.result == "failed" and len(heard) > 1
    result: Result = "unknown" if is_doubtful else last.result
    return replace(last, sent_us=first.sent_us, result=result, is_repeated=len(heard) > 1)


def _mark(job: Job) -> int:
    mark: int = msgspec.json.decode(job.payload)["mark"]
    return mark


def _told(heard: Heard) -> tuple[int, ...]:
    """The due times of the runs that an answer names."""
    run_ids = () if heard.answer is None else heard.answer["run_ids"]
    return tuple(parse_run_id(run_id).due_us for run_id in run_ids)


def _too_late(heard: Heard) -> tuple[int, ...]:
    run_ids = () if heard.answer is None else heard.answer["too_late"]
    return tuple(parse_run_id(run_id).due_us for run_id in run_ids)
