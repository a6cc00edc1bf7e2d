"""One who asks, now and then, in the name of one tenant for what is another's.

Invariant: what is asked for is there, or was a moment ago, and its owner would get it. Whatever is
answered but that there is no such thing, is noted as something that was shown.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple
from uuid import UUID

from tests.checker.records import Trespass, Verb
from tests.faults.client import Answered, Client

SECOND_US = 1_000_000
ARMED_US = 900_000  # ahead of its time, and surely by then
REST_S = (1.0, 3.0)
NOT_FOUND = 404


class Question(NamedTuple):
    verb: Verb | Literal["read"]
    method: str
    path: str


QUESTIONS = (
    Question("read", "GET", "jobs/{job}"),
    Question("read", "GET", "jobs/{job}/runs"),
    Question("read", "GET", "runs/{run}"),
    Question("edit", "PATCH", "jobs/{job}"),
    Question("pause", "POST", "jobs/{job}/pause"),
    Question("trigger", "POST", "jobs/{job}/trigger"),
    Question("delete", "DELETE", "jobs/{job}"),
    Question("cancel", "POST", "runs/{run}/cancel"),
)


class Trespasser:
    """Speaks for each of the clients in turn, as a seed decides."""

    def __init__(
        self, clients: Sequence[Client], random: Random, database_us: Callable[[], int]
    ) -> None:
        self._clients = clients
        self._random = random
        self._database_us = database_us

    async def run(self, stopped: asyncio.Event) -> None:
        """Until it is stopped."""
        while not stopped.is_set():
            await self._one()
            try:
                async with asyncio.timeout(self._random.uniform(*REST_S)):
                    await stopped.wait()
            except TimeoutError:
                continue

    async def _one(self) -> None:
        asker, owner = self._random.sample(self._clients, 2)
        if owner.recurring:
            await self.ask(self._random.choice(QUESTIONS), asker, owner)

    async def ask(self, question: Question, asker: Client, owner: Client) -> None:
        """Asks for any job of its owner, or for the run that it has about now."""
        job_id = owner.ids[self._random.choice(owner.recurring)]
        due_us = self._due_us()
        path = question.path.format(job=job_id, run=f"{UUID(job_id).hex}-{due_us}")
        # Where an edit gets through without an answer, the worker sees whose payload that is.
        document = {"payload": asker.payload(mark=0)} if question.verb == "edit" else None
        answered = await asker.send(question.method, path, document)
        asker.trespasses.append(
            Trespass(
                verb=question.verb,
                job=job_id,
                tenant=asker.tenant.tenant_id,
                at_us=answered.sent_us,
                shown=_shown(answered),
                due_us=due_us if "{run}" in question.path else None,
                answer=f"{answered.status} {answered.body}",
            )
        )

    def _due_us(self) -> int:
        """A second for which a job has a run: one that is over, or the next, which is armed."""
        latest = (self._database_us() + ARMED_US) // SECOND_US
        return (latest - self._random.randint(0, 1)) * SECOND_US


def _shown(answered: Answered) -> Literal["nothing", "something", "unknown"]:
    if answered.status is None or answered.status >= 500:
        return "unknown"
    return "nothing" if answered.status == NOT_FOUND else "something"
