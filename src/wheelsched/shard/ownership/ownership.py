"""The partitions that a shard owns, its trust in the lease, its past, and the lock on arming.

Invariant: the shard arms and sends only for partitions that it holds, and only while it trusts its
lease and its lease connection is open. Tokens of a partition only grow, even if the database goes
back in time. No claim is in progress during a hand-over.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.core.lease import LeaseTerms, Trust, is_from_the_past
from wheelsched.core.model import RunKey
from wheelsched.core.partition import partition_of
from wheelsched.core.token import first_token, next_token, split_token
from wheelsched.errors import DatabaseWentBack
from wheelsched.ports import Clock, Lease, PartitionOwner, Renewal, Survey
from wheelsched.values.duration import MILLISECOND

# For how long an open lease connection counts as open without another look. It is asked for each
# run. A process that was frozen looks again, because the machine's clock went on.
OPEN_US: Final = 2 * MILLISECOND

MOST_ENDED: Final = 10_000  # runs whose end is remembered: those of a few seconds, about 3 MB


class Holding(Struct):
    """A partition of ours, and the last token that was issued for it."""

    epoch: int
    token: int
    learned_us: int  # when it was gained, or unfinished runs of it were last read
    gained_us: int
    released_epoch: int = 0  # the last epoch whose owner released it
    released_at_us: int | None = None  # when it did, by the database's clock
    is_ready: bool = False  # its unfinished runs are known, so new ones may be armed


class Past:
    """What a process remembers across its leases, to notice what the database has forgotten: the
    last epochs of partitions, and the runs whose end was written last.

    It is bounded, and decides nothing but epochs: what it knows of runs is only reported.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self._ended: set[RunKey] = set()
        self._ended_before: set[RunKey] = set()
        self._doubtful: set[RunKey] = set()

    def gained(self, partition: int, epoch: int) -> None:
        self.epochs[partition] = max(epoch, self.epochs.get(partition, 0))

    def ended(self, keys: Collection[RunKey]) -> None:
        """Records runs whose final outcome was written."""
        self._ended.update(keys)
        if len(self._ended) > MOST_ENDED // 2:
            self._ended_before, self._ended = self._ended, set()

    def doubt(self) -> None:
        """Records that the database may have forgotten the end of these runs."""
        self._doubtful = self._ended | self._ended_before

    def count_repeated(self, keys: Iterable[RunKey]) -> int:
        """How many runs that were just claimed had ended before, as far as this process knows."""
        if not self._doubtful:
            return 0
        repeated = self._doubtful.intersection(keys)
        self._doubtful -= repeated
        return len(repeated)


class Ownership:
    """The lease of a shard and the partitions it owns. `clock` is the machine's own."""

    def __init__(
        self,
        lease: Lease,
        terms: LeaseTerms,
        clock: Clock,
        is_connected: Callable[[], bool] = lambda: True,
        past: Past | None = None,
    ) -> None:
        """`past` is what the process remembers of its earlier leases."""
        self.lease = lease
        self.terms = terms
        self._clock = clock
        self._is_connected = is_connected
        self._open_until_us = 0
        self.past = Past() if past is None else past
        self.renewals = 0  # confirmed
        self._server_started_us: int | None = None
        self._is_starting_over = False
        self._forgotten: set[int] = set()  # partitions, until their runs are known again
        self._trust = Trust()
        self._holdings: dict[int, Holding] = {}
        self.live_shards: frozenset[UUID] = frozenset()  # with a lease at the last survey

    @property
    def shard_id(self) -> UUID:
        return self.lease.shard_id

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that the shard owns."""
        return frozenset(self._holdings)

    @property
    def ready_partitions(self) -> frozenset[int]:
        """The partitions whose unfinished runs are known."""
        return frozenset(
            partition for partition, holding in self._holdings.items() if holding.is_ready
        )

    @property
    def is_trusted(self) -> bool:
        """Whether the shard may arm and fire."""
        now_us = self.now_us()
        if not self._trust.holds_at(now_us) or self._is_starting_over:
            return False
        return now_us < self._open_until_us or self._look_at_connection(now_us)

    def _look_at_connection(self, now_us: int) -> bool:
        is_open = self._is_connected()
        self._open_until_us = now_us + OPEN_US if is_open else 0
        return is_open

    @property
    def trust_left_us(self) -> int:
        now_us = self.now_us()
        is_open = not self._is_starting_over and self._look_at_connection(now_us)
        return self._trust.left_us(now_us) if is_open else 0

    def now_us(self) -> int:
        """The machine's time, which measures trust; never the database's."""
        return self._clock.now_ns() // 1_000

    def renewed(self, sent_us: int, lease: Lease, renewal: Renewal) -> bool:
        """Records a renewal of `lease` that was sent at `sent_us` and confirmed by the database.

        Raises `DatabaseWentBack` if it contradicts earlier ones. Returns whether another server, or
        another lifetime of the same one, has confirmed it. That one may have forgotten some of what
        was committed: then trust returns only after `started_over`.
        """
        if is_from_the_past(renewal.renewals, renewal.fence, self.renewals, lease.fence):
            self.lose()
            raise DatabaseWentBack(
                f"{DatabaseWentBack.__doc__} (renewals {renewal.renewals}, known {self.renewals}; "
                f"fence {renewal.fence}, known {lease.fence})"
            )
        before_us, self._server_started_us = self._server_started_us, renewal.server_started_us
        is_other = before_us is not None and before_us != renewal.server_started_us
        self._is_starting_over |= is_other
        self.renewals = renewal.renewals
        self._trust = self._trust.renewed(sent_us, self.terms)
        return is_other

    def started_over(self, partitions: Iterable[int]) -> None:
        """Lets trust return: everything unsent was forgotten, and no partition is held."""
        self._is_starting_over = False
        self._forgotten.update(partitions)

    def unrecovered(self, orphaned: Callable[[], Container[int]]) -> frozenset[int]:
        """Partitions that the shard has forgotten, and whose runs it has not adopted again.

        The database may say that this shard carries some of these runs. The next owner of the
        partition would wait for it for ever. `orphaned` are the partitions with orphans.
        """
        if self._forgotten:
            waiting = orphaned()
            self._forgotten -= {each for each in self.ready_partitions if each not in waiting}
        return frozenset(self._forgotten)

    def epochs(self) -> dict[int, int]:
        """The partitions that the shard holds, with their epochs."""
        return {partition: holding.epoch for partition, holding in self._holdings.items()}

    def check_survey(self, held_before: dict[int, int], survey: Survey) -> None:
        """Raises `DatabaseWentBack` if a partition that was held all the time is not ours.

        `held_before` are the epochs from before the survey was sent. If the lease itself is gone,
        its partitions say nothing.
        """
        if all(shard.shard_id != self.shard_id for shard in survey.shards):
            return
        for each in survey.partitions:
            holding = self._holdings.get(each.partition)
            if holding is None or held_before.get(each.partition) != holding.epoch:
                continue
            if (each.owner, each.epoch) != (self.shard_id, holding.epoch):
                self.lose()
                raise DatabaseWentBack(
                    f"{DatabaseWentBack.__doc__} (partition {each.partition} has epoch "
                    f"{each.epoch} and owner {each.owner}; it was ours with epoch {holding.epoch})"
                )

    def lose(self) -> None:
        """Ends trust: the database says that the lease is gone."""
        self._trust = self._trust.lost()

    def gain(self, owned: Iterable[PartitionOwner]) -> list[int]:
        """Adds the partitions that the database says are ours; returns the new ones."""
        gained = [each for each in owned if each.partition not in self._holdings]
        for each in gained:
            token = first_token(each.epoch)
            self.past.gained(each.partition, each.epoch)
            self._holdings[each.partition] = Holding(
                each.epoch,
                token,
                self.now_us(),
                self.now_us(),
                each.released_epoch,
                each.released_at_us,
            )
        return [each.partition for each in gained]

    def note_unheld(self, owned: Iterable[PartitionOwner]) -> None:
        """Records epochs of ours whose acquisition had no answer: they are taken with greater ones.

        The database may have forgotten that other owners have had greater ones since.
        """
        for each in owned:
            self.past.gained(each.partition, each.epoch)

    def learned(self, partitions: Iterable[int]) -> None:
        """Records that unfinished runs of these partitions were read: there is progress."""
        now_us = self.now_us()
        for partition in partitions:
            if partition in self._holdings:
                self._holdings[partition].learned_us = now_us

    def unready_us(self) -> dict[int, int]:
        """The partitions that are not ready, and for how long none of their unfinished runs were
        read."""
        now_us = self.now_us()
        return {
            partition: now_us - holding.learned_us
            for partition, holding in self._holdings.items()
            if not holding.is_ready
        }

    def ready(self, partitions: Iterable[int]) -> None:
        """Allows new runs to be armed: the unfinished ones are known."""
        for partition in partitions:
            if partition in self._holdings:
                self._holdings[partition].is_ready = True

    def drop(self, partitions: Collection[int]) -> None:
        """Stops holding partitions."""
        for partition in partitions:
            self._holdings.pop(partition, None)

    def holds(self, partition: int) -> bool:
        return partition in self._holdings

    def may_arm(self, job_id: UUID) -> bool:
        """Whether the job is ours, and the unfinished runs of its partition are known."""
        holding = self._holdings.get(partition_of(job_id))
        return holding is not None and holding.is_ready

    def was_released(self, job_id: UUID, token: int) -> bool:
        """Whether the shard that issued the token has released the job's partition since.

        It sent none of the runs that it left armed. A dead shard may have.
        """
        holding = self._holdings.get(partition_of(job_id))
        return holding is not None and split_token(token).epoch == holding.released_epoch

    def was_released_after(self, job_id: UUID, token: int, when_us: int) -> bool:
        """Whether the shard that issued the token had the job's partition until after this time."""
        holding = self._holdings.get(partition_of(job_id))
        if holding is None or holding.released_at_us is None:
            return False
        return self.was_released(job_id, token) and when_us <= holding.released_at_us

    def gained_for_us(self, job_id: UUID) -> int:
        """For how long the shard has owned the job."""
        holding = self._holdings.get(partition_of(job_id))
        return 0 if holding is None else self.now_us() - holding.gained_us

    def next_token(self, job_id: UUID) -> int:
        """A token for an attempt of a job that is ours."""
        return self.next_token_in(partition_of(job_id))

    def next_token_in(self, partition: int) -> int:
        """The next token of a partition that is ours."""
        holding = self._holdings[partition]
        holding.token = next_token(holding.token)
        return holding.token


class ArmingLock:
    """Claims hold it together; a hand-over holds it alone.

    A hand-over that waits goes before claims that come later: arming a hot second does not delay a
    hand-over.
    """

    def __init__(self) -> None:
        self._shared_count = 0
        self._exclusive_count = 0  # hand-overs that hold it, or wait for it
        self._is_free = asyncio.Event()  # for claims
        self._is_free.set()
        self._is_empty = asyncio.Event()  # of claims
        self._is_empty.set()
        self._exclusive = asyncio.Lock()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Holds the lock together with other claims."""
        while self._exclusive_count:
            await self._is_free.wait()
        self._shared_count += 1
        self._is_empty.clear()
        try:
            yield
        finally:
            self._shared_count -= 1
            if not self._shared_count:
                self._is_empty.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Holds the lock alone."""
        self._exclusive_count += 1
        self._is_free.clear()
        try:
            async with self._exclusive:
                await self._is_empty.wait()
                yield
        finally:
            self._exclusive_count -= 1
            if not self._exclusive_count:
                self._is_free.set()
