"""A history in which nothing went wrong: one job, every ten seconds, on one shard."""

from msgspec.structs import replace
from tests.checker.records import (
    Arrival,
    Definition,
    History,
    JobRow,
    Life,
    Ownership,
    PartitionRow,
    Request,
    RunRow,
    Schedule,
)

SECOND = 1_000_000
START = 1_800_000_000 * SECOND
HEALED = START + 60 * SECOND
ENDED = START + 90 * SECOND
JOB, TENANT, SHARD, PARTITION = "job", "tenant", "shard", 7
DEFINITION = Definition(
    schedule=Schedule(kind="every", every_us=10 * SECOND, anchor_us=START),
    url="http://worker.example",
    mark=1,
)


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def token(epoch: int, counter: int) -> int:
    return epoch << 32 | counter


def request(verb: str, seconds: float, **fields: object) -> Request:
    """One that was answered at once."""
    common = {"job": JOB, "tenant": TENANT, "result": "ok"}
    times = {"sent_us": at(seconds), "answered_us": at(seconds) + 5_000}
    return Request(**{"verb": verb} | common | times | fields)  # type: ignore[arg-type] # by name


def run(seconds: float, **fields: object) -> RunRow:
    """One that succeeded on time."""
    common = {"job": JOB, "tenant": TENANT, "partition": PARTITION, "shard": SHARD}
    ended = {"state": "succeeded", "trigger": "schedule", "attempt": 1, "skip_reason": None}
    times = {"due_us": at(seconds), "armed_at_us": at(seconds - 1), "finished_at_us": at(seconds)}
    missed = {"missed_count": None, "missed_since_us": None}
    numbered = {"token": token(1, int(seconds))}
    return RunRow(**common | ended | times | missed | numbered | fields)  # type: ignore[arg-type] # by name


def arrival(seconds: float, **fields: object) -> Arrival:
    """One that was answered at once."""
    common = {"job": JOB, "tenant": TENANT, "url": DEFINITION.url, "mark": 1, "attempt": 1}
    times = {"due_us": at(seconds), "scheduled_us": at(seconds), "at_us": at(seconds)}
    said = {"answer": "ok", "answered_us": at(seconds), "trigger": "schedule"}
    named = {"key": f"{JOB}:{seconds}", "token": token(1, int(seconds))}
    return Arrival(**common | times | said | named | fields)  # type: ignore[arg-type] # by name


def quiet() -> History:
    seconds = range(10, 91, 10)
    return History(
        started_us=START,
        healed_us=HEALED,
        ended_us=ENDED,
        requests=(request("create", 0, definition=DEFINITION),),
        arrivals=tuple(map(arrival, seconds)),
        jobs=(
            JobRow(
                job=JOB, tenant=TENANT, partition=PARTITION, state="active", next_due_us=at(100)
            ),
        ),
        runs=tuple(map(run, seconds)),
        partitions=(PartitionRow(partition=PARTITION, epoch=1),),
        ownerships=(Ownership(partition=PARTITION, epoch=1, shard=SHARD, from_us=START),),
        lives=(Life(from_us=START, shards=(SHARD,)),),
    )


def changed_run(history: History, seconds: float, **fields: object) -> History:
    runs = (replace(one, **fields) if one.due_us == at(seconds) else one for one in history.runs)
    return replace(history, runs=tuple(runs))


def changed_arrival(history: History, seconds: float, **fields: object) -> History:
    arrivals = (
        replace(one, **fields) if one.due_us == at(seconds) else one for one in history.arrivals
    )
    return replace(history, arrivals=tuple(arrivals))


def without(history: History, seconds: float, *, arrival_only: bool = False) -> History:
    """Without a run, or without its arrival alone."""
    due_us = at(seconds)
    arrivals = tuple(one for one in history.arrivals if one.due_us != due_us)
    runs = history.runs if arrival_only else tuple(r for r in history.runs if r.due_us != due_us)
    return replace(history, arrivals=arrivals, runs=runs)


def and_also(history: History, *others: Request | RunRow | Arrival) -> History:
    """With more of what is told."""
    requests = tuple(one for one in others if isinstance(one, Request))
    runs = tuple(one for one in others if isinstance(one, RunRow))
    arrivals = tuple(one for one in others if isinstance(one, Arrival))
    return replace(
        history,
        requests=history.requests + requests,
        runs=history.runs + runs,
        arrivals=history.arrivals + arrivals,
    )
