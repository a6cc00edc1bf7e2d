"""Writes outcomes that workers report to the API, on Postgres.

Invariant: like those of a shard, they are fenced by token; the shard of each changed run is hinted.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from wheelsched.core.model import RunKey
from wheelsched.ports import Settled
from wheelsched.ports.work import Receipt
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries
from wheelsched.store.for_shard.hints import hint, hint_many
from wheelsched.store.for_shard.outcomes import note_stale, settle

QUERIES = load_queries("history.sql")


async def write_reported_outcomes(
    connection: Connection, settled: Sequence[Settled]
) -> list[Receipt]:
    """Writes outcomes in a transaction of their tenant, and returns the receipt of each."""
    # In one order, so that two transactions do not deadlock.
    ordered = sorted(range(len(settled)), key=lambda index: settled[index].key)
    receipts = [Receipt.WRITTEN] * len(settled)
    for indexes in _distinct(ordered, settled):
        batch = [settled[index] for index in indexes]
        unchanged = await settle(connection, batch)
        kept = {outcome.key for outcome in unchanged}
        await _hint(connection, [each.key.job_id for each in batch if each.key not in kept])
        if unchanged:
            found = await _judge(connection, unchanged)
            for index in indexes:
                receipts[index] = found.get(settled[index].key, Receipt.WRITTEN)
    return receipts


async def _hint(connection: Connection, job_ids: Sequence[UUID]) -> None:
    if len(job_ids) == 1:
        await hint(connection, job_ids[0])  # only to the owner of its partition
    elif job_ids:
        await hint_many(connection, job_ids)


async def _judge(connection: Connection, unchanged: Sequence[Settled]) -> dict[RunKey, Receipt]:
    """The receipts of outcomes that changed nothing: stale, repeated, or without a run."""
    stale = await note_stale(connection, unchanged)
    receipts = dict.fromkeys(stale, Receipt.STALE)
    rest = {outcome.key: outcome.token for outcome in unchanged if outcome.key not in stale}
    if rest:
        rows = await connection.fetch(
            QUERIES["read_tokens"], [key.job_id for key in rest], [key.due_us for key in rest]
        )
        tokens = {RunKey(row["job_id"], row["due_at"]): row["token"] for row in rows}
        for key, token in rest.items():
            if key not in tokens:
                receipts[key] = Receipt.UNKNOWN
            elif tokens[key] != token:  # a dead run whose day was dropped
                receipts[key] = Receipt.STALE
    return receipts


def _distinct(ordered: Sequence[int], settled: Sequence[Settled]) -> Iterator[list[int]]:
    """The outcomes in batches without repeated runs: two outcomes of a run are written in order."""
    while ordered:
        batch: dict[RunKey, int] = {}
        later = [each for each in ordered if batch.setdefault(settled[each].key, each) != each]
        yield list(batch.values())
        ordered = later
