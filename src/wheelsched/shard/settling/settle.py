"""Stage *settle*: writes results, in batches.

Invariant: the row of a result is computed once, and written with as many retries as the store
needs. A result takes effect only after it was written: a run that ended makes way for the next one
of its job, a run that failed waits for its retry, and an accepted run is watched.

Dispatching is more urgent than writing: while due runs are on their way to the socket, results wait
for a while. A result that a next run of its job waits for does not, because `overlap` needs it.
"""

import asyncio
from collections.abc import Container, Iterable, Sequence
from itertools import chain, groupby
from operator import attrgetter
from random import Random

import structlog

from wheelsched.core.model import FINAL_STATES, Lane, RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.flow import yielding
from wheelsched.logs import about_run
from wheelsched.ports import Ending, Retry, Settled
from wheelsched.shard.context import Context
from wheelsched.shard.queues import ExternalRun, Queues
from wheelsched.shard.retrying_store import Settlement
from wheelsched.shard.settling.results import (
    Report,
    Ruling,
    gone_jobs,
    settle_attempts,
    settle_ruling,
)

log = structlog.get_logger("wheelsched.shard")


class Settle:
    """Writes results."""

    def __init__(self, context: Context, queues: Queues, random: Random) -> None:
        self._context = context
        self._config = context.config.settle
        self._queues = queues
        self._results = queues.results
        self._random = random
        self._gives_way_until_us: int | None = None  # None unless it gives way
        self._writes: set[asyncio.Task[None]] = set()  # in progress

    async def run(self) -> None:
        """Writes until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._results.arrived.wait()
                await self._linger()
                await self._write_some(tasks)

    async def _linger(self) -> None:
        """Waits for more results, and for due runs to be sent."""
        clock = self._context.clock
        if self._results.runs < self._config.batch:
            await clock.sleep(self._config.linger_ns)
        self._update_giving_way()
        while self._gives_way and not self._results.has_awaited:
            await clock.sleep(self._config.linger_ns)
            self._update_giving_way()

    @property
    def _gives_way(self) -> bool:
        """Whether results that no run waits for are delayed in favour of due runs."""
        until_us = self._gives_way_until_us
        return until_us is not None and self._context.ownership.now_us() < until_us

    def _update_giving_way(self) -> None:
        """Gives way once to an endless stream of due runs, not before every batch."""
        if not self._has_due:
            self._gives_way_until_us = None
        elif self._gives_way_until_us is None:
            now_us = self._context.ownership.now_us()
            self._gives_way_until_us = now_us + self._config.give_way_us

    @property
    def _has_due(self) -> bool:
        """Whether due runs are still on their way to the socket.

        Runs for a failing or hanging target, and runs that wait for workers, do not count: they may
        wait for long.
        """
        queues = self._queues
        if queues.due:
            return True
        now_us = self._context.ownership.now_us()
        is_flowing = now_us - queues.due.flowed_us < self._context.config.fire.flowing_us
        return is_flowing and queues.outgoing.queued(Lane.ON_TIME) > queues.outgoing.rooms.stuck

    async def _write_some(self, tasks: asyncio.TaskGroup) -> None:
        """Starts to write a batch; returns when all are written, or the next one may start."""
        self._update_giving_way()
        is_urgent = self._results.has_awaited and self._gives_way
        batch, keys = self._results.take(awaited_only=is_urgent)
        if batch:
            write = tasks.create_task(self._write(batch, keys))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        has_more = batch and self._results.runs >= self._config.batch
        while len(self._writes) >= (self._config.at_once if has_more else 1):
            await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)

    async def _write(self, results: Sequence[Report | Ruling], keys: set[RunKey]) -> None:
        try:
            await self._write_batch(results)
        finally:
            self._results.written(keys)

    async def _write_batch(self, results: Sequence[Report | Ruling]) -> None:
        context = self._context
        now_us = context.clock.now_us()
        parts: list[list[Settled]] = []
        async for some in yielding(context.clock, results, self._config.slice):
            parts += [self._decide(result, now_us) for result in some]
        settled = list(chain.from_iterable(parts))
        began_us = context.ownership.now_us()
        settlement = await context.store.settle(settled)
        context.vitals.store.settles.observe(context.ownership.now_us() - began_us, len(settled))
        followed = 0
        for result, written in zip(results, parts, strict=True):
            self._apply(result, written, settlement)
            if isinstance(result, Report) and result.receipt is not None:
                _confirm(result, settlement)
            followed += len(result)
            if followed >= self._config.slice:
                followed = 0
                await context.clock.sleep(0)
        if gone := gone_jobs(results, settlement.stale | settlement.refused):
            await context.store.pause_gone(gone)

    def _decide(self, result: Report | Ruling, now_us: int) -> list[Settled]:
        """The rows of a result."""
        if isinstance(result, Ruling):
            return [settle_ruling(result)]
        if (lateness_us := result.lateness_us) is not None:
            self._context.vitals.runs.lateness.observe(lateness_us, len(result))
        return settle_attempts(result, now_us, self._random)

    def _apply(
        self, result: Report | Ruling, settled: Sequence[Settled], settlement: Settlement
    ) -> None:
        """Applies a result that was written."""
        if isinstance(result, Ruling) and self._context.registry.rulings.written(result.key):
            self._queues.reloads.put(result.key.job_id)
        if settlement.stale or settlement.refused:
            self._end_stale(one for one in settled if one.key in settlement.stale)
            unwritten = settlement.stale | settlement.refused  # refused ones stay live
            self._unsettle(result, unwritten)
            settled = [one for one in settled if one.key not in unwritten]
        for ending, alike in groupby(settled, attrgetter("ending")):
            written = list(alike)
            self._count(ending, len(written))
            if isinstance(result, Ruling) or ending.state in FINAL_STATES:
                for one in written:
                    self._end(one.key, one.token)
            else:
                self._keep_live(result, ending, written)

    def _end_stale(self, stale: Iterable[Settled]) -> None:
        """Ends stale attempts, unless the later attempt is ours."""
        for one in stale:
            self._context.vitals.runs.stale_outcomes += 1
            log.info("outcome.stale", **about_run(one.key, one.token))
            if not self._context.registry.has_later(one.key, one.token):
                self._end(one.key, one.token)

    def _unsettle(self, result: Report | Ruling, unwritten: Container[RunKey]) -> None:
        """Lets the next runs of a job no longer wait for an outcome that will not be written."""
        if isinstance(result, Report):
            for run in result.runs:
                if run.key in unwritten:
                    self._context.registry.unsettle(run)

    def _end(self, key: RunKey, token: int) -> None:
        """Ends a run with this attempt, and perhaps its job too."""
        registry, ending = self._context.registry, self._queues.ending
        if not registry.end_alone(key, token):
            registry.end(key, token)
        if key.job_id in ending.running:
            ending.run_ended(key.job_id)

    def _keep_live(self, report: Report, ending: Ending, written: Sequence[Settled]) -> None:
        """Keeps runs live that wait for a retry, or for the worker that accepted them.

        If their partition was handed over meanwhile, the new owner has them.
        """
        context = self._context
        staying: set[RunKey] = set()
        for one in written:
            if context.ownership.holds(partition_of(one.key.job_id)):
                context.registry.pause(one.key)
                staying.add(one.key)
            else:
                context.registry.end(one.key, one.token)
        if ending.retry_at_us is not None:
            for key in staying:
                self._queues.upcoming.retries.put(Retry(key, ending.retry_at_us))
        else:
            for run in report.runs:
                if run.key in staying:
                    self._queues.accepted.put(ExternalRun(run))

    def _count(self, ending: Ending, count: int) -> None:
        runs = self._context.vitals.runs
        runs.entered[ending.state] += count
        if ending.state is RunState.RETRYING:
            runs.retries += count
        if ending.skip_reason is not None:
            runs.skipped[ending.skip_reason] += count


def _confirm(report: Report, settlement: Settlement) -> None:
    """Confirms a report that was written to those who wait for that."""
    assert report.receipt is not None
    if not report.receipt.done():
        unwritten = settlement.stale | settlement.refused
        report.receipt.set_result({key for key in report.keys if key in unwritten})
