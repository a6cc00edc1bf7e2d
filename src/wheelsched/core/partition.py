"""Assigns jobs to 256 partitions, and partitions to shards.

Invariant: both assignments depend only on the ids. They are the same in every process, on every
machine and in every version, because stored rows and shards that never talk to each other rely on
them.

A job's partition is the first byte of the SHA-256 of its id's 16 bytes. In Postgres that is
`get_byte(sha256(uuid_send(job_id)), 0)`, so jobs can be registered from SQL too.

Placement is rendezvous hashing: each partition goes to the shard with the highest score for it. A
shard that joins takes its share from all others and moves nothing else. A shard that leaves moves
only its own partitions.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final
from uuid import UUID

PARTITIONS: Final = 256


def partition_of(job_id: UUID) -> int:
    """The partition of a job. It never changes."""
    return sha256(job_id.bytes).digest()[0]


def placement(shard_ids: Iterable[UUID]) -> dict[int, UUID]:
    """The shard that should own each partition; empty if there is no shard."""
    scores = [(_scores(shard_id), shard_id) for shard_id in set(shard_ids)]
    if not scores:
        return {}
    return {
        partition: max((score[partition], shard_id) for score, shard_id in scores)[1]
        for partition in range(PARTITIONS)
    }


def share_of(shard_id: UUID, shard_ids: Iterable[UUID]) -> frozenset[int]:
    """The partitions that a shard should own, given all live shards."""
    return _shares(frozenset(shard_ids)).get(shard_id, frozenset())


# Every shard computes every share each second, and the set of live shards rarely changes.
@lru_cache(maxsize=16)
def _shares(shard_ids: frozenset[UUID]) -> dict[UUID, frozenset[int]]:
    shares: dict[UUID, set[int]] = {shard_id: set() for shard_id in shard_ids}
    for partition, owner in placement(shard_ids).items():
        shares[owner].add(partition)
    return {shard_id: frozenset(share) for shard_id, share in shares.items()}


@lru_cache(maxsize=1_024)
def _scores(shard_id: UUID) -> tuple[bytes, ...]:
    """The score of a shard for each partition: a digest, compared as bytes."""
    return tuple(
        sha256(shard_id.bytes + partition.to_bytes(1, "big")).digest()
        for partition in range(PARTITIONS)
    )
