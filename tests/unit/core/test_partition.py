"""Golden values and shares. A change of any golden value orphans every stored row."""

from collections import Counter
from hashlib import sha256
from uuid import UUID

import pytest

from wheelsched.core.partition import PARTITIONS, partition_of, placement, share_of


def shards(count: int) -> list[UUID]:
    return [UUID(bytes=sha256(f"shard {index}".encode()).digest()[:16]) for index in range(count)]


@pytest.mark.parametrize(
    ("job_id", "partition"),
    [
        ("00000000-0000-0000-0000-000000000000", 55),
        ("00000000-0000-0000-0000-000000000001", 124),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", 90),
        ("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f", 21),
    ],
)
def test_the_partition_of_a_job_never_changes(job_id: str, partition: int) -> None:
    assert partition_of(UUID(job_id)) == partition


def test_the_placement_never_changes() -> None:
    owners = placement(UUID(int=index) for index in (1, 2, 3))
    assert "".join(str(owners[partition].int) for partition in range(32)) == (
        "11311233312332233221313312322133"
    )


def test_jobs_spread_evenly_over_all_partitions() -> None:
    # Ids that differ only at their end are what a generator of time-ordered ids hands out.
    counts = Counter(partition_of(UUID(int=(0x018F << 112) + n)) for n in range(256 * 100))
    assert set(counts) == set(range(PARTITIONS))
    assert min(counts.values()) > 60
    assert max(counts.values()) < 140


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 16])
def test_every_partition_has_an_owner_and_no_shard_twice_its_share(count: int) -> None:
    owners = placement(shards(count))
    assert list(owners) == list(range(PARTITIONS))
    shares = Counter(owners.values())
    assert set(shares) == set(shards(count))
    assert max(shares.values()) < 2 * PARTITIONS / count or count == 1
    assert min(shares.values()) > PARTITIONS / count / 2


def test_without_a_shard_there_is_no_owner() -> None:
    assert placement([]) == {}
    assert share_of(UUID(int=1), []) == frozenset()


def test_the_order_in_which_shards_are_listed_does_not_matter() -> None:
    listed = shards(5)
    assert placement(listed) == placement(listed[::-1]) == placement(listed + listed)


def test_the_shares_are_the_placement() -> None:
    listed = shards(3)
    shares = [share_of(shard_id, listed) for shard_id in listed]
    assert sum(len(share) for share in shares) == PARTITIONS
    assert frozenset[int]().union(*shares) == frozenset(range(PARTITIONS))
    assert share_of(UUID(int=1), listed) == frozenset()
