"""Shards on the wire: leases, partitions and load.

Invariant: leases and partitions come from the database; what a shard reports about itself is null
until it reports.
"""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from wheelsched.core.model import BreakerKind


class BreakerAnswer(Struct, frozen=True, kw_only=True):
    """A circuit breaker that is not closed.

    Only kind `job` has a `job_id`. `target` is an origin, or for kind `target` the URL of a batch
    target.
    """

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
        str | UnsetType | None,
        Meta(description="Address of the shard's metrics; for operators only."),
    ] = UNSET
    started_at: datetime
    is_expired: bool
    renewals: int
    partitions: list[int]
    lateness_p99_ms: float | None = None
    armed: int | None = None
    in_flight: int | None = None
    unready_partitions: int | None = None  # none of their runs fires yet
    went_back_at: datetime | None = None  # it noticed that the database had lost committed data
    breakers: Annotated[
        list[BreakerAnswer],
        Meta(description="At most 100 of the caller's tenant; for operators, of all tenants."),
    ] = []


class ShardsAnswer(Struct, frozen=True, kw_only=True):
    """All shards, and the partitions without an owner."""

    items: list[ShardAnswer]
    free_partitions: list[int]
