"""`shards`: lists shards, their partitions and their load.

Invariant: a shard that does not respond is listed without the values that only it knows.
"""

from wheelsched.cli.output import Output, rows
from wheelsched.cli.shared import with_watchable_client
from wheelsched.client import SyncClient
from wheelsched.wire.shard import ShardAnswer


@with_watchable_client
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
            "address": lambda shard: shard.address or None,  # set for operators only
        },
    )
    return Output(answer, table.text)


def _lease_of(shard: ShardAnswer) -> str:
    return "expired" if shard.is_expired else "held"
