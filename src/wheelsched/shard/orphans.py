"""Under acquire: partitions that their owner gave up, because it could not read their runs.

Invariant: whoever gave a partition up does not take it back at once, and any shard may take one
that stays free. Who takes it keeps it for a while, though it is not of its share: otherwise the
partition would go straight back to where it could not be read.
"""

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from wheelsched.core.duration import MINUTE, SECOND

ORPHANED_US = 10 * SECOND  # free for so long: its owner does not come for it
GIVEN_UP_US = 3 * ORPHANED_US  # and by whom it was given up, only if nobody else does
KEPT_US = 10 * MINUTE


class Orphans:
    """What one shard knows of them, by its own clock."""

    def __init__(self) -> None:
        self._free_since_us: dict[int, int] = {}
        self._given_up_us: dict[int, int] = {}
        self._kept_until_us: dict[int, int] = {}

    def given_up(self, partitions: Collection[int], now_us: int) -> None:
        """This shard could not read them."""
        self._given_up_us |= dict.fromkeys(partitions, now_us)

    def without_given_up(self, share: AbstractSet[int]) -> set[int]:
        """Those of its share that the shard may take at once."""
        return {partition for partition in share if partition not in self._given_up_us}

    def among(self, free: Collection[int], now_us: int) -> set[int]:
        """Those of the free partitions that any shard may take. Ask at every look around."""
        self._given_up_us = {
            partition: at_us
            for partition, at_us in self._given_up_us.items()
            if partition in free or now_us - at_us < GIVEN_UP_US
        }
        self._free_since_us = {
            partition: self._free_since_us.get(partition, now_us) for partition in free
        }
        return {
            partition
            for partition, since_us in self._free_since_us.items()
            if now_us - since_us >= self._patience_us(partition)
        }

    def taken(self, partitions: Collection[int], now_us: int) -> None:
        """The shard has taken them."""
        for partition in partitions:
            self._given_up_us.pop(partition, None)
            self._kept_until_us[partition] = now_us + KEPT_US

    def kept(self, now_us: int) -> AbstractSet[int]:
        """Those that the shard keeps, whoever's share they are."""
        self._kept_until_us = {
            partition: until_us
            for partition, until_us in self._kept_until_us.items()
            if now_us < until_us
        }
        return self._kept_until_us.keys()

    def _patience_us(self, partition: int) -> int:
        return GIVEN_UP_US if partition in self._given_up_us else ORPHANED_US
