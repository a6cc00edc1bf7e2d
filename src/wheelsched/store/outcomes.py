"""Stage *settle*, on Postgres: outcomes, whoever reports them, a shard or a worker by the API.

Invariant: an outcome changes its run only while the run is live and has the outcome's token.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import asyncpg

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.storable import storable_status, storable_text
from wheelsched.ports import Ending, Settled
from wheelsched.store.connection import Connection
from wheelsched.store.queries import load_queries

QUERIES = load_queries("outcomes.sql")


class Stretch(NamedTuple):
    """Neighbours that share their due time and their ending; positions count from 1."""

    first: int
    last: int
    due_us: int
    ending: Ending


def in_stretches(settled: Sequence[Settled]) -> list[Stretch]:
    """The outcomes, cut where the due time or the ending changes.

    To encode a value takes longer than whatever else is done here for a run: what half a million
    runs of one second share is sent once for a batch of them.
    """
    stretches = []
    first, due_us, ending = 1, settled[0].key.due_us, settled[0].ending
    for position, outcome in enumerate(settled, 1):
        if outcome.ending is not ending or outcome.key.due_us != due_us:
            stretches.append(Stretch(first, position - 1, due_us, ending))
            first, due_us, ending = position, outcome.key.due_us, outcome.ending
    stretches.append(Stretch(first, len(settled), due_us, ending))
    return stretches


def in_turns(settled: Sequence[Settled]) -> Iterator[Sequence[Settled]]:
    """The outcomes in batches with no run twice: two of one run are written one after the other."""
    if len({outcome.key for outcome in settled}) == len(settled):
        yield settled
        return
    while settled:
        turn: dict[RunKey, Settled] = {}
        later = [
            outcome for outcome in settled if turn.setdefault(outcome.key, outcome) is not outcome
        ]
        yield tuple(turn.values())
        settled = later


async def settle(connection: Connection, settled: Sequence[Settled]) -> Sequence[Settled]:
    """Writes outcomes, no run of which is there twice, and gives those that changed nothing."""
    succeeded = [outcome for outcome in settled if outcome.ending.state is RunState.SUCCEEDED]
    others: Sequence[Settled] = ()
    if len(succeeded) < len(settled):
        others = [outcome for outcome in settled if outcome.ending.state is not RunState.SUCCEEDED]
    if succeeded:
        others = [*others, *await _settle_successes(connection, succeeded)]
    return await _settle_others(connection, others) if others else ()


async def _settle_successes(
    connection: Connection, settled: Sequence[Settled]
) -> Sequence[Settled]:
    """Writes that first attempts have succeeded, and gives what was none, or changed nothing."""
    stretches = in_stretches(settled)
    endings = [stretch.ending for stretch in stretches]
    row = await connection.fetchrow(
        QUERIES["settle_successes"],
        *_named(settled, stretches),
        [ending.started_at_us for ending in endings],
        [ending.finished_at_us for ending in endings],
        [ending.lateness_us for ending in endings],
        [storable_status(ending.http_status) for ending in endings],
    )
    return _unchanged(row, settled)


async def _settle_others(connection: Connection, settled: Sequence[Settled]) -> Sequence[Settled]:
    """Writes any outcomes, and gives those that changed nothing."""
    stretches = in_stretches(settled)
    endings = [stretch.ending for stretch in stretches]
    row = await connection.fetchrow(
        QUERIES["settle"],
        *_named(settled, stretches),
        [ending.state for ending in endings],
        [ending.started_at_us for ending in endings],
        [ending.finished_at_us for ending in endings],
        [ending.lateness_us for ending in endings],
        [storable_status(ending.http_status) for ending in endings],
        [storable_text(ending.error) for ending in endings],
        [ending.retry_at_us for ending in endings],
        [ending.skip_reason for ending in endings],
    )
    return _unchanged(row, settled)


def _named(settled: Sequence[Settled], stretches: Sequence[Stretch]) -> tuple[list[object], ...]:
    """Which runs the outcomes are of, and which of them each stretch has."""
    return (
        [outcome.key.job_id for outcome in settled],
        [outcome.token for outcome in settled],
        [stretch.first for stretch in stretches],
        [stretch.last for stretch in stretches],
        [stretch.due_us for stretch in stretches],
    )


def _unchanged(row: asyncpg.Record | None, settled: Sequence[Settled]) -> Sequence[Settled]:
    assert row
    if row["changed"] == len(settled):
        return ()
    changed = set(row["positions"] or ())
    return [outcome for position, outcome in enumerate(settled, 1) if position not in changed]


async def note_stale(connection: Connection, unchanged: Sequence[Settled]) -> set[RunKey]:
    """Of outcomes that changed nothing, notes and gives those whose run has another token."""
    rows = await connection.fetch(
        QUERIES["note_stale"],
        [outcome.key.job_id for outcome in unchanged],
        [outcome.key.due_us for outcome in unchanged],
        [outcome.token for outcome in unchanged],
        [outcome.ending.started_at_us for outcome in unchanged],
        [outcome.ending.finished_at_us for outcome in unchanged],
        [storable_status(outcome.ending.http_status) for outcome in unchanged],
        [storable_text(outcome.ending.error) for outcome in unchanged],
    )
    return {RunKey(row["job_id"], row["due_at"]) for row in rows}
