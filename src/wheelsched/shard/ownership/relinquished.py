"""Partitions that a shard relinquished because it could not read their runs.

Invariant: a shard does not take back at once a partition that it relinquished, and any shard may
take a partition that stays free. The shard that takes it keeps it for a while, even if it is not of
its share: otherwise it would go straight back to the shard that could not read it.
"""

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from wheelsched.values.duration import MINUTE, SECOND

ORPHANED_US = 10 * SECOND  # free for this long: any shard may take it
RELINQUISHED_US = 3 * ORPHANED_US  # the shard that relinquished it waits longer
KEPT_US = 10 * MINUTE


class Relinquished:
    """The relinquished partitions, by the shard's own clock."""

    def __init__(self) -> None:
        self._free_since_us: dict[int, int] = {}
        self._relinquished_us: dict[int, int] = {}
        self._kept_until_us: dict[int, int] = {}

    def add(self, partitions: Collection[int], now_us: int) -> None:
        """Records partitions that this shard could not read."""
        self._relinquished_us |= dict.fromkeys(partitions, now_us)

    def allowed(self, share: AbstractSet[int]) -> set[int]:
        """The partitions of its share that the shard may take at once."""
        return {partition for partition in share if partition not in self._relinquished_us}

    def among(self, free: Collection[int], now_us: int) -> set[int]:
        """The free partitions that any shard may take. Call it at every survey."""
        self._relinquished_us = {
            partition: at_us
            for partition, at_us in self._relinquished_us.items()
            if partition in free or now_us - at_us < RELINQUISHED_US
        }
        self._free_since_us = {
            partition: self._free_since_us.get(partition, now_us) for partition in free
        }
        return {
            partition
            for partition, since_us in self._free_since_us.items()
            if now_us - since_us >= self._free_for_us(partition)
        }

    def taken(self, partitions: Collection[int], now_us: int) -> None:
        """Records partitions that the shard has taken."""
        for partition in partitions:
            self._relinquished_us.pop(partition, None)
            self._kept_until_us[partition] = now_us + KEPT_US

    def kept(self, now_us: int) -> AbstractSet[int]:
        """The partitions that the shard keeps, even if they are not of its share."""
        self._kept_until_us = {
            partition: until_us
            for partition, until_us in self._kept_until_us.items()
            if now_us < until_us
        }
        return self._kept_until_us.keys()

    def _free_for_us(self, partition: int) -> int:
        return RELINQUISHED_US if partition in self._relinquished_us else ORPHANED_US
