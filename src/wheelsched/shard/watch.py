"""Sweep: runs that somebody else has in hand, watched until they have ended or are abandoned.

Invariant: a run that a worker has accepted is that worker's until it has been silent for its
timeout; one that another shard brings to its end is that shard's while its lease exists.

Silence is measured by the machine's clock: it is a heartbeat that has not changed for a timeout.
The instant that the database gives for one only shortens the wait, so that a step of its clock
silences nobody.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import FINAL_STATES, Run, RunKey, RunState
from wheelsched.core.outcome import TransportFailure, classify
from wheelsched.core.partition import partition_of
from wheelsched.ports import Checked, Retry
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.portions import in_portions
from wheelsched.shard.reports import Report
from wheelsched.shard.retries import Retries

PAGE = 1_000
ACCEPTED = 202
NOT_LOOKED = -1  # for a heartbeat


class Watched(Struct, eq=False, kw_only=True):
    """A run that somebody else has in hand: its worker, or the shard that carries it."""

    run: ArmedRun
    deadline_us: int  # when to look, by the machine's clock
    heard_us: int | None = None  # the latest heartbeat that was seen, by the database's
    carrier: UUID | None = None


class Outlets(Struct, frozen=True):
    """Where runs go from here."""

    settle: Callable[[Report], None]
    ended: Callable[[RunKey], None]
    abandoned: Callable[[Sequence[Run]], Awaitable[None]]  # of a shard that is gone


class Watch:
    """Looks after what is in hand elsewhere."""

    def __init__(self, context: Context, retries: Retries, outlets: Outlets) -> None:
        self._context = context
        self._retries = retries
        self._outlets = outlets
        self._watched: dict[RunKey, Watched] = {}

    def add(self, run: ArmedRun) -> None:
        """Waits for a worker that has accepted a run."""
        deadline_us = self._context.tenure.now_us() + run.rules.timeout_us
        self._watched[run.key] = Watched(run=run, deadline_us=deadline_us)

    def take_up(self, run: ArmedRun, carrier: UUID | None) -> None:
        """Goes on waiting for a worker, or for the shard that carries a run, where others did."""
        self._watched[run.key] = Watched(
            run=run,
            deadline_us=self._context.tenure.now_us(),  # to see what its heartbeat is
            heard_us=NOT_LOOKED,
            carrier=carrier,
        )

    async def forget(self, partitions: Collection[int]) -> None:
        """Watches nothing any more in partitions that are ours no more."""
        async for keys in in_portions(self._context.clock, self._watched):
            for key in keys:
                if partition_of(key.job_id) in partitions:
                    self._watched.pop(key, None)

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            await self._context.clock.sleep(self._context.config.watch_us * 1_000)
            now_us = self._context.tenure.now_us()
            doubtful: list[Watched] = []
            async for portion in in_portions(self._context.clock, self._watched.values()):
                doubtful += [
                    watched
                    for watched in portion
                    if watched.deadline_us <= now_us or watched.carrier is not None
                ]
            for start in range(0, len(doubtful), PAGE):
                await self._look_after(doubtful[start : start + PAGE])

    async def _look_after(self, watched: Sequence[Watched]) -> None:
        keys = [one.run.key for one in watched]
        checked = await self._context.patience.insist(
            "run.recheck", lambda: self._context.stores.runs.recheck(keys)
        )
        found = {check.run.key: check for check in checked}
        abandoned = []
        for one in watched:
            check = found.get(one.run.key)
            if self._watched.get(one.run.key) is not one:
                continue  # a later attempt is watched by now
            if check is None or check.run.state is not RunState.RUNNING:
                self._release(one, check)
            elif check.run.token != one.run.token:
                del self._watched[one.run.key]  # accepted again, which settle is about to tell
            elif one.carrier is not None and check.run.http_status == ACCEPTED:
                self.add(one.run)  # its worker has accepted it from whoever carried it
            elif one.carrier is None:
                self._judge_silence(one, check)
            elif one.carrier not in self._context.tenure.seen:
                abandoned.append(check.run)
                del self._watched[one.run.key]
        if abandoned:
            await self._outlets.abandoned(abandoned)

    def _release(self, watched: Watched, check: Checked | None) -> None:
        """It is in hand no more: it has ended, or waits for its next attempt, or that is armed."""
        key = watched.run.key
        self._watched.pop(key, None)
        if check is None or check.run.state in FINAL_STATES:
            self._outlets.ended(key)
        elif check.run.retry_at_us is not None:
            self._retries.put(Retry(key, check.run.retry_at_us))

    def _judge_silence(self, watched: Watched, check: Checked) -> None:
        run, timeout_us = watched.run, watched.run.rules.timeout_us
        now_us = self._context.clock.now_us()
        heard_us = check.heartbeat_at_us
        if heard_us != watched.heard_us:
            watched.heard_us = heard_us
            left_us = (heard_us or 0) + timeout_us - now_us
            if not 0 < left_us <= timeout_us:
                left_us = timeout_us  # there is none yet, or the database's clock was set since
            watched.deadline_us = self._context.tenure.now_us() + left_us
            return
        del self._watched[run.key]
        outcome = classify(TransportFailure.HEARTBEAT_MISSED, now_us=now_us)
        self._outlets.settle(Report(runs=(run,), outcome=outcome, finished_us=now_us))
