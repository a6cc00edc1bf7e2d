"""Stage *settle*, on Postgres: outcomes, whoever reports them, a shard or a worker by the API.

Invariant: an outcome changes its run only while the run is live and has the outcome's token.
"""

from collections.abc import Iterator, Sequence

from wheelsched.core.model import RunKey
from wheelsched.core.storable import storable_status, storable_text
from wheelsched.ports import Settled
from wheelsched.store.connection import Connection
from wheelsched.store.queries import load_queries

QUERIES = load_queries("outcomes.sql")


def in_turns(settled: Sequence[Settled]) -> Iterator[Sequence[Settled]]:
    """The outcomes in batches with no run twice: two of one run are written one after the other."""
    while settled:
        turn: dict[RunKey, Settled] = {}
        later = [
            outcome for outcome in settled if turn.setdefault(outcome.key, outcome) is not outcome
        ]
        yield tuple(turn.values())
        settled = later


async def settle(connection: Connection, settled: Sequence[Settled]) -> list[Settled]:
    """Writes outcomes, and gives those that changed nothing."""
    row = await connection.fetchrow(
        QUERIES["settle"],
        [outcome.key.job_id for outcome in settled],
        [outcome.key.due_us for outcome in settled],
        [outcome.token for outcome in settled],
        [outcome.state for outcome in settled],
        [outcome.started_at_us for outcome in settled],
        [outcome.finished_at_us for outcome in settled],
        [outcome.lateness_us for outcome in settled],
        [storable_status(outcome.http_status) for outcome in settled],
        [storable_text(outcome.error) for outcome in settled],
        [outcome.retry_at_us for outcome in settled],
        [outcome.skip_reason for outcome in settled],
    )
    assert row
    if row["changed"] == len(settled):
        return []
    changed = set(row["positions"] or ())
    return [outcome for position, outcome in enumerate(settled, 1) if position not in changed]


async def note_stale(connection: Connection, unchanged: Sequence[Settled]) -> set[RunKey]:
    """Of outcomes that changed nothing, notes and gives those whose run has another token."""
    rows = await connection.fetch(
        QUERIES["note_stale"],
        [outcome.key.job_id for outcome in unchanged],
        [outcome.key.due_us for outcome in unchanged],
        [outcome.token for outcome in unchanged],
        [outcome.started_at_us for outcome in unchanged],
        [outcome.finished_at_us for outcome in unchanged],
        [storable_status(outcome.http_status) for outcome in unchanged],
        [storable_text(outcome.error) for outcome in unchanged],
    )
    return {RunKey(row["job_id"], row["due_at"]) for row in rows}
