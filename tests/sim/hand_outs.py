"""What is known of the runs that shards hand out: noted at the shard, and later by their worker.

Invariant: a run is noted in the moment in which the shard gives it to a link. Whoever gets it after
that adds to the same note.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from tests.checker.records import Arrival, Beat, Handful
from tests.sim.logbook import Logbook

from wheelsched.core.model import format_run_id, parse_run_id
from wheelsched.ports.work import Attempted, Desk, Desks, Pool, QueueRun, Receiver
from wheelsched.wire.callback import read_instant


class HandOuts:
    """The notes about all of them."""

    def __init__(self, logbook: Logbook) -> None:
        self._logbook = logbook
        self._places: dict[tuple[str, int], int] = {}  # the latest, by run and token

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun]) -> None:
        for run in runs:
            is_asked = run.queue in pool.queues
            self._add(run.content + b"}", str(pool.tenant_id), is_unasked=not is_asked)

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        for attempt in attempts:
            self._change(
                format_run_id(attempt.key), attempt.token, given_back_us=self._logbook.now_us()
            )

    def receive(self, worker: str, tenant_id: UUID, content: bytes, *, is_pushed: bool) -> None:
        """A worker has begun a run."""
        claimed = _read(content)
        run_id, token = claimed["run_id"], claimed["fencing_token"]
        if (run_id, token) not in self._places:
            self._add(content, str(tenant_id), is_unasked=True)
        self._change(
            run_id,
            token,
            worker=worker,
            tenant=str(tenant_id),
            received_us=self._logbook.now_us(),
            is_pushed=is_pushed,
            given_back_us=None,
        )

    def count(self, worker: str, count: int, open_credits: int) -> None:
        """A worker has got runs at once."""
        at_us = self._logbook.now_us()
        handful = Handful(worker=worker, at_us=at_us, count=count, credits=open_credits)
        self._logbook.handfuls.append(handful)

    def beat(self, run_id: str, token: int, beat: Beat) -> None:
        self._change(run_id, token, beats=(*self._find(run_id, token).beats, beat))

    def end(self, run_id: str, token: int, answer: str) -> None:
        """A worker has done what it had to, and is about to say so."""
        self._change(run_id, token, answer=answer, answered_us=self._logbook.now_us())

    def accept(self, run_id: str, token: int) -> None:
        self._once(run_id, token, "accepted_us")

    def tell(self, run_id: str, token: int) -> None:
        self._once(run_id, token, "told_us")

    def leave(self, run_id: str, token: int) -> None:
        self._once(run_id, token, "left_us")

    def _once(self, run_id: str, token: int, field: str) -> None:
        if getattr(self._find(run_id, token), field) is None:
            self._change(run_id, token, **{field: self._logbook.now_us()})

    def _find(self, run_id: str, token: int) -> Arrival:
        return self._logbook.arrivals[self._places[(run_id, token)]]

    def _change(self, run_id: str, token: int, **fields: object) -> None:
        place = self._places.get((run_id, token))
        if place is not None:
            known = self._logbook.arrivals[place]
            self._logbook.arrivals[place] = replace(known, **fields)

    def _add(self, content: bytes, tenant: str, *, is_unasked: bool) -> None:
        claimed = _read(content)
        key = parse_run_id(claimed["run_id"])
        attempt = (claimed["run_id"], claimed["fencing_token"])
        self._places[attempt] = len(self._logbook.arrivals)
        self._logbook.arrivals.append(
            Arrival(
                job=str(key.job_id),
                tenant=tenant,
                signer=claimed["payload"]["tenant"],
                due_us=key.due_us,
                scheduled_us=read_instant(claimed["scheduled_at"]),
                key=claimed["idempotency_key"],
                token=claimed["fencing_token"],
                attempt=claimed["attempt"],
                trigger=claimed["trigger"],
                url=f"queue:{claimed['queue']}",
                mark=claimed["payload"]["mark"],
                at_us=self._logbook.now_us(),
                queue=claimed["queue"],
                is_unasked=is_unasked,
            )
        )


def _read(content: bytes) -> dict[str, Any]:
    claimed: dict[str, Any] = msgspec.json.decode(content)
    return claimed


class NotedReceiver:
    """The process at the other end of a link, as its shard sees it."""

    def __init__(self, receiver: Receiver, notes: HandOuts) -> None:
        self._receiver = receiver
        self._notes = notes
        self.cancel = receiver.cancel
        self.wait = receiver.wait

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        self._notes.hand_out(pool, runs)
        self._receiver.hand_out(pool, runs, until_us)


class NotedDesk:
    """A desk that notes what it is given back."""

    def __init__(self, desk: Desk, notes: HandOuts) -> None:
        self._desk = desk
        self._notes = notes

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._desk, name)
        return method

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        self._notes.give_back(attempts)
        self._desk.give_back(attempts)


class NotedDesks:
    """The desks of one shard."""

    def __init__(self, desks: Desks, notes: HandOuts) -> None:
        self._desks = desks
        self._notes = notes

    def open(self, receiver: Receiver) -> Desk:
        noted: Any = NotedDesk(self._desks.open(NotedReceiver(receiver, self._notes)), self._notes)
        desk: Desk = noted
        return desk
