"""`shards`: who holds which partitions, and how they are doing.

Invariant: a shard that does not answer is in the list, without the numbers that only it knows.
"""

from wheelsched.cli.commands import lists_from_api
from wheelsched.cli.output import Output, rows
from wheelsched.client import SyncClient
from wheelsched.wire.shard import ShardAnswer


@lists_from_api
def shards(client: SyncClient) -> Output:
    """Show leases, partitions, lateness, armed runs and runs in flight."""
    answer = client.list_shards()
    table = rows(
        answer.items,
        {
            "shard": lambda shard: shard.shard_id,
            "lease": _lease_of,
            "partitions": lambda shard: len(shard.partitions),
            "not ready": lambda shard: shard.unready_partitions,
            "late p99 ms": lambda shard: shard.lateness_p99_ms,
            "armed": lambda shard: shard.armed,
            "in flight": lambda shard: shard.in_flight,
            "since": lambda shard: shard.started_at,
            "address": lambda shard: shard.address or None,  # unset unless for operators
        },
    )
    return Output(answer, table.text)


def _lease_of(shard: ShardAnswer) -> str:
    return "expired" if shard.is_expired else "held"
