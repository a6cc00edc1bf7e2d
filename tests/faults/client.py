"""The clients of an experiment: they ask over REST, and write down what they know of the answer.

Invariant: each request is sent once. 2xx was done, 4xx was not; of anything else nobody knows, and
a job of which that is true is not touched again: the request may still be under way. Each tenant
has a client, with a token of its own.
"""

import asyncio
import time
from collections.abc import Iterable
from itertools import islice
from uuid import UUID

import aiohttp
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from tests.checker.records import Definition, Request, Result, Schedule, Trespass, Verb
from tests.faults.tenants import Tenant

TIMEOUT_S = 5.0
BULK_TIMEOUT_S = 120.0
MS = 1_000


def now_us() -> int:
    """The reference: the wall clock of the machine, which nobody moves."""
    return time.time_ns() // 1_000


class Answered(Struct, frozen=True, kw_only=True):
    """What came back."""

    result: Result
    status: int | None
    sent_us: int
    answered_us: int
    body: dict[str, object]


class Client:
    """One tenant's client. Jobs go by their names until their ids are known."""

    def __init__(self, url: str, tenant: Tenant) -> None:
        self.tenant = tenant
        self._session = aiohttp.ClientSession(
            base_url=f"{url}/api/v1/", headers={"authorization": f"Bearer {tenant.token}"}
        )
        self.requests: list[Request] = []  # `job` is a name
        self.trespasses: list[Trespass] = []
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

    @property
    def recurring(self) -> list[str]:
        """Those of them that are due again and again."""
        return [name for name in self.settled if self._definitions[name].schedule.kind == "cron"]

    def by_id(self) -> list[Request]:
        """The requests with the ids of their jobs, as far as they are known."""
        return [replace(one, job=self.ids.get(one.job, one.job)) for one in self.requests]

    async def create_all(self, definitions: dict[str, Definition], batch: int = 1) -> None:
        """Registers many at once, while all is well."""
        marked = {name: self._marked(definition) for name, definition in definitions.items()}
        documents = [self._document(name, one, batch) for name, one in marked.items()]
        answered = await self.send("POST", "jobs/bulk", documents, BULK_TIMEOUT_S)
        assert answered.result == "ok", answered
        items = msgspec.convert(answered.body["items"], list[dict[str, object]])
        for (name, definition), item in zip(marked.items(), items, strict=True):
            assert "job_id" in item, item
            self._created(name, definition, answered, str(item["job_id"]))

    async def create(self, name: str, definition: Definition, **fields: object) -> None:
        """Registers one; `fields` of the document take the place of those of the definition."""
        marked = self._marked(definition)
        answered = await self.send("POST", "jobs", self._document(name, marked, 1) | fields)
        job_id = str(answered.body["job_id"]) if answered.result == "ok" else None
        self._created(name, marked, answered, job_id)

    async def edit(self, name: str) -> None:
        """Another payload."""
        definition = self._marked(self._definitions[name])
        document = {"payload": self.payload(definition.mark)}
        answered = await self.send("PATCH", f"jobs/{self.ids[name]}", document)
        self._note("edit", name, answered, definition=definition)
        if answered.result == "ok":
            self._definitions[name] = definition

    async def pause(self, name: str) -> None:
        self._note("pause", name, await self.send("POST", f"jobs/{self.ids[name]}/pause", None))

    async def resume(self, name: str) -> None:
        self._note("resume", name, await self.send("POST", f"jobs/{self.ids[name]}/resume", None))

    async def trigger(self, name: str) -> None:
        answered = await self.send("POST", f"jobs/{self.ids[name]}/trigger", None)
        due_us = None
        if answered.result == "ok":
            (due_us,) = _due_times(answered.body["run_ids"])
        self._note("trigger", name, answered, due_us=due_us)

    async def backfill(self, name: str, since_us: int, until_us: int) -> None:
        document = {"since": _instant(since_us), "until": _instant(until_us)}
        answered = await self.send("POST", f"jobs/{self.ids[name]}/backfill", document)
        filled_us = _due_times(answered.body.get("run_ids", ()))
        bounds = {"since_us": since_us, "until_us": until_us}
        self._note("backfill", name, answered, filled_us=filled_us, **bounds)

    async def delete(self, name: str) -> None:
        self._note("delete", name, await self.send("DELETE", f"jobs/{self.ids[name]}", None))
        self._gone.add(name)

    async def cancel(self, name: str) -> None:
        """The run of a job that is due once, if it is there already."""
        due_us = self._definitions[name].schedule.at_us
        run_id = f"{UUID(self.ids[name]).hex}-{due_us}"
        answered = await self.send("POST", f"runs/{run_id}/cancel", None)
        in_time = answered.body.get("in_time") is True
        self._note("cancel", name, answered, due_us=due_us, in_time=in_time)

    async def send(
        self, method: str, path: str, document: object, timeout_s: float = TIMEOUT_S
    ) -> Answered:
        body = None if document is None else msgspec.json.encode(document)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent_us = now_us()
        result: Result = "unknown"
        status = None
        answer: dict[str, object] = {}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, path, data=body, headers={"content-type": kind}
                ) as response,
            ):
                status = response.status
                answer = msgspec.json.decode(await response.read() or b"{}")
                if status < 500:
                    result = "ok" if status < 300 else "failed"
        except (TimeoutError, aiohttp.ClientError, msgspec.DecodeError):
            pass
        return Answered(
            result=result, status=status, sent_us=sent_us, answered_us=now_us(), body=answer
        )

    def payload(self, mark: int) -> dict[str, object]:
        return {"mark": mark, "tenant": self.tenant.tenant_id}

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
                tenant=self.tenant.tenant_id,
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

    def _document(self, name: str, definition: Definition, batch: int) -> dict[str, object]:
        return {
            "name": name,
            "schedule": _written(definition.schedule),
            "target": _target(definition, batch),
            "payload": self.payload(definition.mark),
            "overlap": {"policy": definition.overlap},
            "retry": {"max_attempts": definition.max_attempts, "max": "2s"},
            "timeout": f"{definition.timeout_us // MS}ms",
            "misfire": {"policy": definition.misfire, "grace": f"{definition.grace_us // MS}ms"},
        }


class Clients:
    """Those of all tenants: what is registered by them is dealt out in turn."""

    def __init__(self, url: str, tenants: Iterable[Tenant]) -> None:
        self.each = tuple(Client(url, tenant) for tenant in tenants)

    async def close(self) -> None:
        for client in self.each:
            await client.close()

    def by_id(self) -> list[Request]:
        """The requests of all of them."""
        return [request for client in self.each for request in client.by_id()]

    async def create_all(self, definitions: dict[str, Definition], batch: int = 1) -> None:
        for place, client in enumerate(self.each):
            share = dict(islice(definitions.items(), place, None, len(self.each)))
            if share:
                await client.create_all(share, batch)


def _target(definition: Definition, batch: int) -> dict[str, object]:
    if not definition.queue:
        return {"url": definition.url, "batch": batch}
    within = f"{definition.claim_within_us // MS}ms"
    return {"queue": definition.queue, "claim_within": within}


def _due_times(run_ids: object) -> tuple[int, ...]:
    return tuple(int(one.partition("-")[2]) for one in msgspec.convert(run_ids, list[str]))


def every_second(url: str, overlap: str = "allow", **fields: object) -> Definition:
    return at_seconds("*", url, overlap=overlap, **fields)


def each_second_from(at_us: int, url: str, **fields: object) -> Definition:
    """At this moment of each second."""
    anchor_us = at_us // MS * MS
    schedule = Schedule(kind="every", every_us=1_000 * MS, anchor_us=anchor_us, start_us=anchor_us)
    return Definition(schedule=schedule, url=url, mark=0, overlap="allow", **fields)  # type: ignore[arg-type] # each by its name


def once_at(at_us: int, url: str, **fields: object) -> Definition:
    """At a whole millisecond, as it is written."""
    schedule = Schedule(kind="at", at_us=at_us // MS * MS)
    return Definition(schedule=schedule, url=url, mark=0, **fields)  # type: ignore[arg-type] # each by its name


def at_seconds(field: str, url: str, **fields: object) -> Definition:
    """In each minute, at the seconds that a field of cron names."""
    schedule = Schedule(kind="cron", cron=f"{field} * * * * *")
    return Definition(schedule=schedule, url=url, mark=0, **fields)  # type: ignore[arg-type] # each by its name


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
