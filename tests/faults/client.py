"""The client of an experiment: asks over REST, and writes down what it knows of the answer.

Invariant: each request is sent once. 2xx was done, 4xx was not; of anything else nobody knows, and
a job of which that is true is not touched again: the request may still be under way.
"""

import asyncio
import time
from collections.abc import Callable
from random import Random
from uuid import UUID

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Definition, Request, Result, Schedule, Verb

TIMEOUT_S = 5.0
BULK_TIMEOUT_S = 120.0
TENANT = "00000000-0000-4000-8000-000000000001"  # of programs of this machine
MS = 1_000
VERBS = ("create",) * 3 + ("toggle", "edit", "trigger", "backfill", "delete", "cancel")


def now_us() -> int:
    """The reference: the wall clock of the machine, which nobody moves."""
    return time.time_ns() // 1_000


class Answered(Struct, frozen=True, kw_only=True):
    """What came back."""

    result: Result
    sent_us: int
    answered_us: int
    body: dict[str, object]


class Client:
    """One tenant's client. Jobs go by their names until their ids are known."""

    def __init__(self, url: str) -> None:
        self._session = aiohttp.ClientSession(base_url=f"{url}/api/v1/")
        self.requests: list[Request] = []  # `job` is a name
        self.ids: dict[str, str] = {}
        self._definitions: dict[str, Definition] = {}
        self._doubtful: set[str] = set()
        self._gone: set[str] = set()
        self._marks = 0

    async def close(self) -> None:
        await self._session.close()

    @property
    def settled(self) -> list[str]:
        """The jobs whose state is known, and that are there."""
        return [name for name in self.ids if name not in self._doubtful | self._gone]

    def by_id(self) -> list[Request]:
        """The requests with the ids of their jobs, as far as they are known."""
        return [replace(one, job=self.ids.get(one.job, one.job)) for one in self.requests]

    async def create_all(self, definitions: dict[str, Definition], batch: int = 1) -> None:
        """Registers many at once, while all is well."""
        marked = {name: self._marked(definition) for name, definition in definitions.items()}
        documents = [_document(name, one, batch) for name, one in marked.items()]
        answered = await self._send("POST", "jobs/bulk", documents, BULK_TIMEOUT_S)
        assert answered.result == "ok", answered
        items = msgspec.convert(answered.body["items"], list[dict[str, object]])
        for (name, definition), item in zip(marked.items(), items, strict=True):
            assert "job_id" in item, item
            self._created(name, definition, answered, str(item["job_id"]))

    async def create(self, name: str, definition: Definition) -> None:
        marked = self._marked(definition)
        answered = await self._send("POST", "jobs", _document(name, marked, 1))
        job_id = str(answered.body["job_id"]) if answered.result == "ok" else None
        self._created(name, marked, answered, job_id)

    async def edit(self, name: str) -> None:
        """Another payload."""
        definition = self._marked(self._definitions[name])
        document = {"payload": _payload(definition)}
        answered = await self._send("PATCH", f"jobs/{self.ids[name]}", document)
        self._note("edit", name, answered, definition=definition)
        if answered.result == "ok":
            self._definitions[name] = definition

    async def pause(self, name: str) -> None:
        self._note("pause", name, await self._send("POST", f"jobs/{self.ids[name]}/pause", None))

    async def resume(self, name: str) -> None:
        self._note("resume", name, await self._send("POST", f"jobs/{self.ids[name]}/resume", None))

    async def trigger(self, name: str) -> None:
        answered = await self._send("POST", f"jobs/{self.ids[name]}/trigger", None)
        due_us = None
        if answered.result == "ok":
            (due_us,) = _due_times(answered.body["run_ids"])
        self._note("trigger", name, answered, due_us=due_us)

    async def backfill(self, name: str, since_us: int, until_us: int) -> None:
        document = {"since": _instant(since_us), "until": _instant(until_us)}
        answered = await self._send("POST", f"jobs/{self.ids[name]}/backfill", document)
        filled_us = _due_times(answered.body.get("run_ids", ()))
        bounds = {"since_us": since_us, "until_us": until_us}
        self._note("backfill", name, answered, filled_us=filled_us, **bounds)

    async def delete(self, name: str) -> None:
        self._note("delete", name, await self._send("DELETE", f"jobs/{self.ids[name]}", None))
        self._gone.add(name)

    async def cancel(self, name: str) -> None:
        """The run of a job that is due once, if it is there already."""
        due_us = self._definitions[name].schedule.at_us
        run_id = f"{UUID(self.ids[name]).hex}-{due_us}"
        answered = await self._send("POST", f"runs/{run_id}/cancel", None)
        in_time = answered.body.get("in_time") is True
        self._note("cancel", name, answered, due_us=due_us, in_time=in_time)

    async def _send(
        self, method: str, path: str, document: object, timeout_s: float = TIMEOUT_S
    ) -> Answered:
        body = None if document is None else msgspec.json.encode(document)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent_us = now_us()
        result: Result = "unknown"
        answer: dict[str, object] = {}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, path, data=body, headers={"content-type": kind}
                ) as response,
            ):
                answer = msgspec.json.decode(await response.read() or b"{}")
                if response.status < 500:
                    result = "ok" if response.status < 300 else "failed"
        except (TimeoutError, aiohttp.ClientError, msgspec.DecodeError):
            pass
        return Answered(result=result, sent_us=sent_us, answered_us=now_us(), body=answer)

    def _created(
        self, name: str, definition: Definition, answered: Answered, job_id: str | None
    ) -> None:
        if job_id is not None:
            self.ids[name] = job_id
            self._definitions[name] = definition
        self._note("create", name, answered, definition=definition)

    def _note(
        self,
        verb: Verb,
        name: str,
        answered: Answered,
        **noted: object,
    ) -> None:
        if answered.result != "ok":
            self._doubtful.add(name)
        self.requests.append(
            Request(
                verb=verb,
                job=name,
                tenant=TENANT,
                sent_us=answered.sent_us,
                answered_us=answered.answered_us,
                result=answered.result,
                too_late=_due_times(answered.body.get("too_late", ())),
                **noted,  # type: ignore[arg-type] # the fields of a request
            )
        )

    def _marked(self, definition: Definition) -> Definition:
        self._marks += 1
        return replace(definition, mark=self._marks)


def _due_times(run_ids: object) -> tuple[int, ...]:
    return tuple(int(one.partition("-")[2]) for one in msgspec.convert(run_ids, list[str]))


def every_second(url: str, overlap: str = "allow", **fields: object) -> Definition:
    return at_seconds("*", url, overlap=overlap, **fields)


def once_at(at_us: int, url: str, **fields: object) -> Definition:
    """At a whole millisecond, as it is written."""
    schedule = Schedule(kind="at", at_us=at_us // MS * MS)
    return Definition(schedule=schedule, url=url, mark=0, **fields)  # type: ignore[arg-type] # each by its name


def at_seconds(field: str, url: str, **fields: object) -> Definition:
    """In each minute, at the seconds that a field of cron names."""
    schedule = Schedule(kind="cron", cron=f"{field} * * * * *")
    return Definition(schedule=schedule, url=url, mark=0, **fields)  # type: ignore[arg-type] # each by its name


class Trickle:
    """A client that asks for something a few times a second, as a seed decides."""

    def __init__(
        self, client: Client, url: str, random: Random, database_us: Callable[[], int]
    ) -> None:
        self._client = client
        self._url = url
        self._random = random
        self._database_us = database_us  # by which everything is due
        self._count = 0
        self._paused: set[str] = set()

    async def prepare(self) -> None:
        await self._client.create_all({f"busy-{n}": every_second(self._url) for n in range(6)})

    async def run(self, stopped: asyncio.Event) -> None:
        """Until it is stopped. What was paused stays so if nobody knows how that ended."""
        while not stopped.is_set():
            await self._one()
            try:
                async with asyncio.timeout(self._random.uniform(0.1, 0.5)):
                    await stopped.wait()
            except TimeoutError:
                continue

    async def _one(self) -> None:
        busy = [name for name in self._client.settled if name.startswith("busy-")]
        verb = self._random.choice(VERBS)
        once = [name for name in self._client.settled if name.startswith("new-")]
        if verb in ("delete", "cancel") and once:
            await getattr(self._client, verb)(once[-1])  # which is the likeliest to be due yet
            return
        if verb in ("create", "delete", "cancel") or not busy:
            self._count += 1
            ahead_us = self._random.randint(1_500_000, 4_000_000)
            await self._client.create(
                f"new-{self._count}", once_at(self._database_us() + ahead_us, self._url)
            )
            return
        name = self._random.choice(busy)
        match verb:
            case "toggle" if name in self._paused:
                await self._client.resume(name)
                self._paused.discard(name)
            case "toggle":
                await self._client.pause(name)
                self._paused.add(name)
            case "edit":
                await self._client.edit(name)
            case "backfill":
                until_us = self._database_us() // MS * MS
                await self._client.backfill(name, until_us - 5_000 * MS, until_us)
            case _:
                await self._client.trigger(name)


def _payload(definition: Definition) -> dict[str, object]:
    return {"mark": definition.mark, "tenant": TENANT}


def _document(name: str, definition: Definition, batch: int) -> dict[str, object]:
    return {
        "name": name,
        "schedule": _written(definition.schedule),
        "target": {"url": definition.url, "batch": batch},
        "payload": _payload(definition),
        "overlap": {"policy": definition.overlap},
        "retry": {"max_attempts": definition.max_attempts, "max": "2s"},
        "timeout": f"{definition.timeout_us // MS}ms",
        "misfire": {"policy": definition.misfire, "grace": f"{definition.grace_us // MS}ms"},
    }


def _written(schedule: Schedule) -> object:
    bounds = {}
    if schedule.kind == "every" or schedule.start_us:
        bounds["start"] = _instant(schedule.start_us or schedule.anchor_us)
    if schedule.end_us is not None:
        bounds["end"] = _instant(schedule.end_us)
    match schedule.kind:
        case "cron":
            return bounds | {"cron": schedule.cron} if bounds else schedule.cron
        case "every":
            return bounds | {"every": f"{schedule.every_us // MS}ms"}
        case "at":
            return _instant(schedule.at_us)


def _instant(at_us: int) -> str:
    seconds, rest_us = divmod(at_us, 1_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{rest_us // MS:03}Z"
