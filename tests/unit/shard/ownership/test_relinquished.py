"""Partitions that a shard relinquished, by its own clock."""

from wheelsched.shard.ownership.relinquished import ORPHANED_US, RELINQUISHED_US, Relinquished
from wheelsched.values.duration import SECOND


def test_the_shard_that_relinquished_a_partition_takes_it_last() -> None:
    relinquished = Relinquished()
    relinquished.add([7], 0)
    assert relinquished.allowed({7, 8}) == {8}
    assert relinquished.among([7, 8], 0) == set()
    assert relinquished.among([7, 8], ORPHANED_US) == {8}
    assert relinquished.among([7, 8], RELINQUISHED_US) == {7, 8}


def test_a_partition_that_another_shard_took_is_no_longer_relinquished() -> None:
    relinquished = Relinquished()
    relinquished.add([7], 0)
    relinquished.among([7], SECOND)
    relinquished.among([], RELINQUISHED_US)
    assert relinquished.allowed({7}) == {7}
