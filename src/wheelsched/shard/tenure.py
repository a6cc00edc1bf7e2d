"""Tenure: what a shard holds at the moment, and how far it may trust in that.

Invariant: nothing is armed or sent for a partition that the tenure does not hold, or while trust
in the lease has passed. Tokens of a partition only grow.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from msgspec import Struct

from wheelsched.core.lease import LeaseTerms, Trust
from wheelsched.core.partition import partition_of
from wheelsched.core.token import first_token, next_token, split_token
from wheelsched.ports import Clock, Lease, Ownership


class Holding(Struct):
    """A partition of ours, and the last token that was issued for it."""

    epoch: int
    token: int
    learned_us: int  # when it was gained, or some of its unfinished runs were read
    released_epoch: int = 0  # the last one whose owner released it
    is_ready: bool = False  # its unfinished runs are known: new ones may be armed


class Tenure:
    """The lease of a shard and the partitions it owns. `clock` is the machine's own."""

    def __init__(self, lease: Lease, terms: LeaseTerms, clock: Clock) -> None:
        self.lease = lease
        self.terms = terms
        self._clock = clock
        self._trust = Trust()
        self._holdings: dict[int, Holding] = {}
        self.seen: frozenset[UUID] = frozenset()  # the shards whose lease existed at the last look

    @property
    def shard_id(self) -> UUID:
        return self.lease.shard_id

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that the shard owns."""
        return frozenset(self._holdings)

    @property
    def ready_partitions(self) -> frozenset[int]:
        """Those whose unfinished runs are known."""
        return frozenset(
            partition for partition, holding in self._holdings.items() if holding.is_ready
        )

    @property
    def is_trusted(self) -> bool:
        """Whether the shard may arm and fire."""
        return self._trust.holds_at(self.now_us())

    @property
    def trust_left_us(self) -> int:
        return self._trust.left_us(self.now_us())

    def now_us(self) -> int:
        """The time by which trust is measured: that of the machine, never the database's."""
        return self._clock.now_ns() // 1_000

    def renewed(self, sent_us: int) -> None:
        """After the database confirmed a renewal that was sent at `sent_us`."""
        self._trust = self._trust.renewed(sent_us, self.terms)

    def lose(self) -> None:
        """After the database said that the lease is gone."""
        self._trust = self._trust.lost()

    def gain(self, owned: Iterable[Ownership]) -> list[int]:
        """Notes what the database says is ours, and gives what was not known to be."""
        gained = [each for each in owned if each.partition not in self._holdings]
        for each in gained:
            token = first_token(each.epoch)
            self._holdings[each.partition] = Holding(
                each.epoch, token, self.now_us(), each.released_epoch
            )
        return [each.partition for each in gained]

    def learned(self, partitions: Iterable[int]) -> None:
        """Some of the unfinished runs of these were read: it goes on with them."""
        now_us = self.now_us()
        for partition in partitions:
            if partition in self._holdings:
                self._holdings[partition].learned_us = now_us

    def unready_us(self) -> dict[int, int]:
        """The partitions of which nothing new may be armed yet, and for how long none of their
        unfinished runs were read."""
        now_us = self.now_us()
        return {
            partition: now_us - holding.learned_us
            for partition, holding in self._holdings.items()
            if not holding.is_ready
        }

    def ready(self, partitions: Iterable[int]) -> None:
        """Lets new runs be armed, now that the unfinished ones are known."""
        for partition in partitions:
            if partition in self._holdings:
                self._holdings[partition].is_ready = True

    def drop(self, partitions: Collection[int]) -> None:
        """Holds these no more."""
        for partition in partitions:
            self._holdings.pop(partition, None)

    def holds(self, partition: int) -> bool:
        return partition in self._holdings

    def may_arm(self, job_id: UUID) -> bool:
        """Whether the job is ours, and everything unfinished of its partition is known."""
        holding = self._holdings.get(partition_of(job_id))
        return holding is not None and holding.is_ready

    def was_released(self, job_id: UUID, token: int) -> bool:
        """Whether whoever issued the token has released the job's partition since.

        What it left armed was never sent; what a dead shard left may have been.
        """
        holding = self._holdings.get(partition_of(job_id))
        return holding is not None and split_token(token).epoch == holding.released_epoch

    def next_token(self, job_id: UUID) -> int:
        """A token for an attempt of a job that is ours."""
        return self.next_token_in(partition_of(job_id))

    def next_token_in(self, partition: int) -> int:
        """The next token of a partition that is ours."""
        holding = self._holdings[partition]
        holding.token = next_token(holding.token)
        return holding.token
