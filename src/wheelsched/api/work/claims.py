"""Claims of workers that poll: each waits for runs, and is answered once.

Invariant: requests with the same worker and the same `claim_id` get the same runs, for as long as
their delivery lease lasts; after that the id is refused. A claim never gets more runs than it asked
for. A run whose requests have all gone before the answer is given back. A worker gives back only
runs of its own claim, once. The memory is bounded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.errors import ClaimExpired, ClaimReused
from wheelsched.ports.work import Attempted, QueueRun, WorkSource
from wheelsched.values.duration import MINUTE, SECOND

log = structlog.get_logger("wheelsched.api")

WITHDRAW_S: Final = 0.05  # how long an answer waits for runs that are on their way
LOOK_S: Final = 0.05  # the shortest wait: runs that wait at a shard come over its link
MAX_KEPT_BYTES: Final = 64 << 20  # of runs that may be asked for again
EXPIRED_US: Final = 10 * MINUTE  # how long an expired id is refused
MAX_EXPIRED: Final = 100_000
MAX_CLAIMED: Final = 100_000  # runs that can be given back


class ClaimKey(Struct, frozen=True):
    """What identifies a claim."""

    tenant_id: UUID
    queues: tuple[str, ...]  # sorted
    worker_id: str
    claim_id: str


class Claimed(Struct, frozen=True):
    """The answer to a claim: its runs, and when their delivery lease expires."""

    runs: tuple[QueueRun, ...] = ()
    expires_us: int = 0

    @property
    def size(self) -> int:
        return sum(len(run.content) for run in self.runs)


class Wanted(Struct, frozen=True, kw_only=True):
    """What a claim asks for. `lost` is done when the connection of its request has ended."""

    max_runs: int
    wait_us: int
    lease_us: int | None = None
    max_bytes: int | None = None  # of the runs together; a single run may be larger
    lost: asyncio.Future[None] | None = None


NOTHING: Final = Claimed()
KeepLease = Callable[[Sequence[QueueRun], int], None]


class _Poll:
    """A claim that waits for runs. Several requests may wait for it."""

    def __init__(self, source: WorkSource, key: ClaimKey, wanted: Wanted) -> None:
        self.runs: list[QueueRun] = []
        self.until_us = 0  # the first end of their delivery leases
        self.requests = 0
        self.answer: asyncio.Future[Claimed] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()
        self.max_runs = wanted.max_runs
        self._wanted = wanted
        self._source = source
        self._key = key
        self._is_closed = False

    def take(self, runs: Sequence[QueueRun], until_us: int) -> None:
        room = 0 if self._is_closed else self.max_runs - len(self.runs)
        if room > 0:
            self.until_us = min(until_us, self.until_us) if self.runs else until_us
            self.runs += runs[:room]
        if len(runs) > room:
            self.give_back(runs[room:])
        self.changed.set()

    def close(self) -> list[QueueRun]:
        """The runs of the claim. Those that arrive later, or are too large, are given back."""
        self._is_closed = True
        fitting = _fitting(self.runs, self._wanted.max_bytes)
        self.give_back(self.runs[fitting:])
        return self.runs[:fitting]

    def give_back(self, runs: Sequence[QueueRun]) -> None:
        if runs:
            self._source.give_back(self._key.tenant_id, [run.attempt for run in runs])


class Claims:
    """All claims of this process."""

    def __init__(
        self, source: WorkSource, keep_lease: KeepLease, now_us: Callable[[], int]
    ) -> None:
        self._source = source
        self._keep_lease = keep_lease
        self._now_us = now_us
        self._polls: dict[ClaimKey, _Poll] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        self._kept: OrderedDict[ClaimKey, Claimed] = OrderedDict()  # about in the order of expiry
        self._kept_bytes = 0
        self._expired_us: OrderedDict[ClaimKey, int] = OrderedDict()  # when it was forgotten
        self._claimed: OrderedDict[Attempted, ClaimKey] = OrderedDict()
        self._is_stopping = False

    @property
    def waiting(self) -> int:
        """How many claims wait for runs."""
        return len(self._polls)

    async def claim(self, key: ClaimKey, wanted: Wanted) -> Claimed:
        """The answer to a claim."""
        max_runs, lost = wanted.max_runs, wanted.lost
        if (kept := self._find(key, max_runs)) is not None:
            return kept
        poll = self._polls.get(key)
        if poll is None:
            poll = self._polls[key] = _Poll(self._source, key, wanted)
            task = asyncio.create_task(self._run(key, poll, wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif max_runs < poll.max_runs:
            raise ClaimReused
        poll.requests += 1
        try:
            waits: list[asyncio.Future[Any]] = (
                [poll.answer] if lost is None else [poll.answer, lost]
            )
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if lost is not None and lost.done():
                return NOTHING  # the caller is gone
            return poll.answer.result()
        finally:
            poll.requests -= 1
            poll.changed.set()

    def release(self, is_theirs: Callable[[ClaimKey], bool], attempt: Attempted) -> bool:
        """Whether a claim of theirs has this run. It does not have it any more, and is not answered
        again."""
        key = self._claimed.get(attempt)
        if key is None or not is_theirs(key):
            return False
        del self._claimed[attempt]
        self._forget(key)
        return True

    async def stop(self) -> None:
        """Answers all claims, with the runs that they have."""
        self._is_stopping = True
        for poll in self._polls.values():
            poll.changed.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, key: ClaimKey, poll: _Poll, wanted: Wanted) -> None:
        try:
            await self._collect(key, poll, wanted.wait_us)
        except Exception as error:  # noqa: BLE001 - the requests are told
            del self._polls[key]
            poll.give_back(poll.close())
            poll.answer.set_exception(error)
            poll.answer.exception()  # it may be that no request is left to read it
            return
        del self._polls[key]
        runs = poll.close()
        if poll.requests == 0:
            poll.give_back(runs)
            poll.answer.cancel()
            return
        claimed = NOTHING
        if runs:
            claimed = Claimed(tuple(runs), poll.until_us)
            if wanted.lease_us is not None:
                self._keep_lease(runs, wanted.lease_us)
            self._keep(key, claimed)
        poll.answer.set_result(claimed)

    async def _collect(self, key: ClaimKey, poll: _Poll, wait_us: int) -> None:
        """Waits for the first runs, and for those that are on their way then."""
        subscription = self._source.subscribe(key.tenant_id, key.queues, poll.take, _ignore)
        try:
            subscription.add_credits(poll.max_runs)
            async with asyncio.timeout(max(wait_us / SECOND, LOOK_S)):
                while self._is_waiting(poll):
                    poll.changed.clear()
                    await poll.changed.wait()
        except TimeoutError:
            pass
        finally:
            withdrawal = asyncio.ensure_future(subscription.withdraw())
            self._tasks.add(withdrawal)
            withdrawal.add_done_callback(self._withdrawn)
            await asyncio.wait([withdrawal], timeout=WITHDRAW_S)

    def _is_waiting(self, poll: _Poll) -> bool:
        return poll.requests > 0 and not poll.runs and not self._is_stopping

    def _withdrawn(self, withdrawal: asyncio.Future[None]) -> None:
        self._tasks.discard(withdrawal)
        if not withdrawal.cancelled() and (error := withdrawal.exception()) is not None:
            log.error("claim.withdrawal_failed", error=type(error).__name__, exc_info=error)

    def _find(self, key: ClaimKey, max_runs: int) -> Claimed | None:
        """The answer that the claim has got, if it may be given again."""
        self._expire()
        kept = self._kept.get(key)
        if kept is not None and kept.expires_us <= self._now_us():
            self._forget(key)
        if key in self._expired_us:
            raise ClaimExpired
        if kept is not None and len(kept.runs) > max_runs:
            raise ClaimReused
        return kept

    def _keep(self, key: ClaimKey, kept: Claimed) -> None:
        self._kept[key] = kept
        self._kept_bytes += kept.size
        for run in kept.runs:
            self._claimed[run.attempt] = key
            self._claimed.move_to_end(run.attempt)
        while len(self._claimed) > MAX_CLAIMED:
            self._claimed.popitem(last=False)
        self._expire()

    def _forget(self, key: ClaimKey) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._kept_bytes -= kept.size
            self._expired_us[key] = self._now_us()

    def _expire(self) -> None:
        now_us = self._now_us()
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.expires_us > now_us and self._kept_bytes <= MAX_KEPT_BYTES:
                break
            self._forget(key)
        while self._expired_us:
            key, expired_us = next(iter(self._expired_us.items()))
            if now_us - expired_us <= EXPIRED_US and len(self._expired_us) <= MAX_EXPIRED:
                break
            del self._expired_us[key]


def _fitting(runs: Sequence[QueueRun], max_bytes: int | None) -> int:
    """How many of these runs have at most `max_bytes` together; at least one."""
    if max_bytes is None:
        return len(runs)
    size = 0
    for count, run in enumerate(runs):
        size += len(run.content)
        if count and size > max_bytes:
            return count
    return len(runs)


def _ignore(attempts: Sequence[Attempted]) -> None:
    """A worker that polls learns of a cancelled run by its heartbeat."""
