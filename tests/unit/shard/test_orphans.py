"""Partitions that a shard gave up, by its own clock."""

from wheelsched.core.duration import SECOND
from wheelsched.shard.orphans import GIVEN_UP_US, ORPHANED_US, Orphans


def test_who_gave_a_partition_up_takes_it_last() -> None:
    orphans = Orphans()
    orphans.given_up([7], 0)
    assert orphans.without_given_up({7, 8}) == {8}
    assert orphans.among([7, 8], 0) == set()
    assert orphans.among([7, 8], ORPHANED_US) == {8}
    assert orphans.among([7, 8], GIVEN_UP_US) == {7, 8}


def test_one_that_another_shard_took_is_given_up_no_more() -> None:
    orphans = Orphans()
    orphans.given_up([7], 0)
    orphans.among([7], SECOND)
    orphans.among([], GIVEN_UP_US)
    assert orphans.without_given_up({7}) == {7}
