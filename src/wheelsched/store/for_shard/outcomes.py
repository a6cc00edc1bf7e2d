"""Settles outcomes that a shard or, through the API, a worker reports, on Postgres.

Invariant: an outcome changes its run only if the run is unfinished and has the token of the
outcome.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import asyncpg

from wheelsched.core.model import RunKey, RunState
from wheelsched.ports import Ending, Settled
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries
from wheelsched.values.sanitize import sanitize_status, sanitize_text

QUERIES = load_queries("outcomes.sql")


class Stretch(NamedTuple):
    """Consecutive outcomes with the same due time and ending; positions count from 1."""

    first: int
    last: int
    due_us: int
    ending: Ending


def in_stretches(settled: Sequence[Settled]) -> list[Stretch]:
    """The outcomes, split where the due time or the ending changes.

    Encoding the values is the most expensive step here. What the runs of a hot second share is
    encoded once per stretch.
    """
    stretches = []
    first, due_us, ending = 1, settled[0].key.due_us, settled[0].ending
    for position, outcome in enumerate(settled, 1):
        if outcome.ending is not ending or outcome.key.due_us != due_us:
            stretches.append(Stretch(first, position - 1, due_us, ending))
            first, due_us, ending = position, outcome.key.due_us, outcome.ending
    stretches.append(Stretch(first, len(settled), due_us, ending))
    return stretches


def in_distinct_batches(settled: Sequence[Settled]) -> Iterator[Sequence[Settled]]:
    """The outcomes in batches without repeated runs: two outcomes of a run are settled in order."""
    if len({outcome.key for outcome in settled}) == len(settled):
        yield settled
        return
    while settled:
        batch: dict[RunKey, Settled] = {}
        later = [
            outcome for outcome in settled if batch.setdefault(outcome.key, outcome) is not outcome
        ]
        yield tuple(batch.values())
        settled = later


async def settle(connection: Connection, settled: Sequence[Settled]) -> Sequence[Settled]:
    """Writes outcomes of distinct runs, and returns those that changed nothing."""
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
    """Writes the success of first attempts, and returns the outcomes that are left."""
    stretches = in_stretches(settled)
    endings = [stretch.ending for stretch in stretches]
    row = await connection.fetchrow(
        QUERIES["settle_successes"],
        *_run_columns(settled, stretches),
        [ending.started_at_us for ending in endings],
        [ending.finished_at_us for ending in endings],
        [ending.lateness_us for ending in endings],
        [sanitize_status(ending.http_status) for ending in endings],
    )
    return _unchanged(row, settled)


async def _settle_others(connection: Connection, settled: Sequence[Settled]) -> Sequence[Settled]:
    """Writes outcomes of any kind, and returns those that changed nothing."""
    stretches = in_stretches(settled)
    endings = [stretch.ending for stretch in stretches]
    row = await connection.fetchrow(
        QUERIES["settle"],
        *_run_columns(settled, stretches),
        [ending.state for ending in endings],
        [ending.started_at_us for ending in endings],
        [ending.finished_at_us for ending in endings],
        [ending.lateness_us for ending in endings],
        [sanitize_status(ending.http_status) for ending in endings],
        [sanitize_text(ending.error) for ending in endings],
        [ending.retry_at_us for ending in endings],
        [ending.skip_reason for ending in endings],
        [ending.is_attempt for ending in endings],
    )
    return _unchanged(row, settled)


def _run_columns(
    settled: Sequence[Settled], stretches: Sequence[Stretch]
) -> tuple[list[object], ...]:
    """The runs of the outcomes, and the stretches that they form."""
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
    """Records and returns the stale outcomes: those whose run has another token by now."""
    rows = await connection.fetch(
        QUERIES["note_stale"],
        [outcome.key.job_id for outcome in unchanged],
        [outcome.key.due_us for outcome in unchanged],
        [outcome.token for outcome in unchanged],
        [outcome.ending.started_at_us for outcome in unchanged],
        [outcome.ending.finished_at_us for outcome in unchanged],
        [sanitize_status(outcome.ending.http_status) for outcome in unchanged],
        [sanitize_text(outcome.ending.error) for outcome in unchanged],
    )
    return {RunKey(row["job_id"], row["due_at"]) for row in rows}
