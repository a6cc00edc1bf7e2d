"""Shards on the wire: who holds what, and how they are doing.

Invariant: leases and partitions are the database's word; what a shard says of itself is null
where it has said nothing.
"""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from wheelsched.core.model import BreakerKind


class BreakerAnswer(Struct, frozen=True, kw_only=True):
    """A circuit breaker that is not closed. Of kind `job` it has a `job_id`; `target` is an origin,
    or of kind `target` the URL of a target with batches."""

    kind: BreakerKind
    target: str
    job_id: UUID | None
    opened_at: datetime
    next_probe_at: datetime
    error: str


class ShardAnswer(Struct, frozen=True, kw_only=True):
    """One shard, its lease and its load."""

    shard_id: UUID
    address: Annotated[
        str | UnsetType | None, Meta(description="of its metrics; for operators only")
    ] = UNSET
    started_at: datetime
    is_expired: bool
    renewals: int
    partitions: list[int]
    lateness_p99_ms: float | None = None
    armed: int | None = None
    in_flight: int | None = None
    unready_partitions: int | None = None  # nothing of these fires yet
    breakers: Annotated[
        list[BreakerAnswer],
        Meta(description="at most 100; those of the caller's tenant, and of all for operators"),
    ] = []


class ShardsAnswer(Struct, frozen=True, kw_only=True):
    """All shards, and the partitions that nobody owns."""

    items: list[ShardAnswer]
    free_partitions: list[int]
