"""Shards on the wire: who holds what, and how they are doing.

Invariant: leases and partitions are the database's word; what a shard says of itself is null
where it has said nothing.
"""

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class ShardAnswer(Struct, frozen=True, kw_only=True):
    shard_id: UUID
    address: str | None
    started_at: datetime
    is_expired: bool
    renewals: int
    partitions: list[int]
    lateness_p99_ms: float | None = None
    armed: int | None = None
    in_flight: int | None = None


class ShardsAnswer(Struct, frozen=True, kw_only=True):
    """All shards, and the partitions that nobody owns."""

    items: list[ShardAnswer]
    free_partitions: list[int]
