"""Applications: they schedule, replace and cancel in transactions of their own.

Some of those are open for seconds, some are rolled back, some write what no shard can plan, and of
some commits nobody hears whether they were done.

Invariant: everything of a transaction is noted with one result, that of its end: `failed` was
rolled back. An application never touches a job that another open transaction of its has in hand.
"""

from random import Random
from uuid import UUID

from msgspec.structs import replace
from tests.checker.records import Definition, Request, Result
from tests.sim.scene import Scene
from tests.sim.wishes import document_of, draw_definition

from wheelsched.core.model import JobState
from wheelsched.ports import Caller, Tenant
from wheelsched.testing.application import MemoryTransaction
from wheelsched.testing.tables import MemoryTables

MS = 1_000_000
CALLER = Caller(UUID(int=1_000), "application")
WRONG = ("61 * * * * *", "every now and then", "0 0 30 2 *", "* * * * * * * *", "FREQ=NEVER")
STEPS = ("schedule", "schedule", "schedule", "schedule_at", "replace", "cancel", "cancel", "wrong")
OPEN_MS = (0, 0, 0, 20, 500, 3_000, 9_000)  # how long a transaction thinks between two calls


class Applications:
    """All programs of one tenant that share the database with the scheduler."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = random
        self._tables: MemoryTables = scene.store._tables
        self._names = 0
        self._in_hand: set[str] = set()
        self._open: set[MemoryTransaction] = set()
        self.loss = 0.0  # how likely it is that nobody hears of a commit

    async def begin(self) -> None:
        tenant = Tenant(tenant_id=CALLER.tenant_id, name="application", created_at_us=0)
        await self._scene.store.tenants.create("test", tenant)

    async def act(self) -> None:
        """One transaction, from its beginning to its end."""
        transaction = self._scene.store.application.begin(CALLER)
        self._open.add(transaction)
        asked: list[Request] = []
        in_hand: set[str] = set()
        for _ in range(self._random.randint(1, 3)):
            await self._travel()
            asked += await self._step(transaction, in_hand)
            await self._scene.clock.sleep(self._random.choice(OPEN_MS) * MS)
        result = await self._end(transaction)
        self._in_hand -= in_hand
        answered_us = self._scene.logbook.now_us()
        self._scene.logbook.requests += [
            replace(request, answered_us=answered_us, result=_worse(request.result, result))
            for request in asked
        ]

    def lose_server(self) -> None:
        """The server has ended all connections, and with them the open transactions."""
        for transaction in self._open:
            transaction.rollback()
        self._open.clear()

    async def _step(self, transaction: MemoryTransaction, in_hand: set[str]) -> list[Request]:
        """One call, and what it asks for."""
        step, name = self._random.choice(STEPS), self._pick()
        if name is None and step in ("replace", "cancel"):
            step = "schedule"
        if name is None or step not in ("replace", "cancel"):
            self._names += 1
            name = f"application-{self._names}"
        in_hand.add(name)
        self._in_hand.add(name)
        before = self._tables.names.get((CALLER.tenant_id, name))
        sent_us = self._scene.logbook.now_us()
        await self._travel()
        if step == "cancel":
            was_in_time = transaction.cancel(name)
            asked = [self._removal(before, sent_us, was_in_time)]
        else:
            job_id = UUID(int=self._random.getrandbits(128), version=4)
            definition = self._definition(job_id, step)
            document = document_of(name, CALLER.tenant_id, definition)
            if step == "wrong":
                document["schedule"] = self._random.choice(WRONG)
            transaction.schedule(job_id, document, "replace")
            asked = [
                *([] if before is None else [self._removal(before, sent_us, was_in_time=True)]),
                self._scheduled(job_id, sent_us, None if step == "wrong" else definition),
            ]
        await self._travel()
        written_us = self._scene.logbook.now_us()
        return [replace(request, written_us=written_us) for request in asked if request.job]

    async def _end(self, transaction: MemoryTransaction) -> Result:
        luck, lost = self._random.random(), self._random.random()
        if luck < 0.15:
            self._roll_back(transaction)
            return "failed"
        await self._travel()
        if transaction not in self._open:
            transaction.rollback()
            return "failed"
        self._open.discard(transaction)
        if lost < self.loss / 2:
            transaction.rollback()  # the server sees the connection end
            return "unknown"
        transaction.commit()
        await self._travel()
        return "unknown" if lost < self.loss else "ok"

    def _roll_back(self, transaction: MemoryTransaction) -> None:
        transaction.rollback()
        self._open.discard(transaction)

    def _definition(self, job_id: UUID, step: str) -> Definition:
        definition = draw_definition(
            self._random, job_id, 1, self._scene.database_us(), self._scene.zone
        )
        if step != "schedule_at":
            return definition
        now_us = self._scene.database_us()
        at_us = now_us - now_us % 1_000 + self._random.randint(10, 20_000) * 1_000
        schedule = replace(definition.schedule, kind="at", at_us=at_us, jitter_us=0)
        return replace(definition, schedule=schedule)

    def _scheduled(self, job_id: UUID, sent_us: int, definition: Definition | None) -> Request:
        return Request(
            verb="create",
            job=str(job_id),
            tenant=str(CALLER.tenant_id),
            sent_us=sent_us,
            answered_us=sent_us,
            result="ok",
            definition=definition,
            is_wrong=definition is None,
        )

    def _removal(self, job_id: UUID | None, sent_us: int, was_in_time: bool | None) -> Request:
        """Who hears that it was too late does not know whether the job was left as it is."""
        return Request(
            verb="delete",
            job="" if job_id is None else str(job_id),
            tenant=str(CALLER.tenant_id),
            sent_us=sent_us,
            answered_us=sent_us,
            result="ok" if was_in_time else "unknown",
        )

    def _pick(self) -> str | None:
        """The name of a job that is there, and that nobody has in hand."""
        names = [
            name
            for (tenant_id, name), job_id in self._tables.names.items()
            if tenant_id == CALLER.tenant_id
            and name not in self._in_hand
            and self._state(job_id) is not JobState.FINISHED
        ]
        return self._random.choice(names) if names else None

    def _state(self, job_id: UUID) -> JobState:
        return (self._tables.jobs.get(job_id) or self._tables.drafts[job_id]).state

    async def _travel(self) -> None:
        await self._scene.clock.sleep(self._random.randint(1, 5) * MS)


def _worse(called: Result, ended: Result) -> Result:
    """What is known of a call in a transaction that ended so."""
    return called if ended == "ok" else ended
