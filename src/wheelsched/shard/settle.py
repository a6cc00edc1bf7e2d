"""Stage *settle*: results are written back, in batches.

Invariant: what was decided about a result is decided once, and written however often the store has
to be asked. What follows from a result follows after it was written: a run that ended makes
room for the next, one that failed waits for its retry, one that was accepted is watched.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import assert_never
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core import settlement
from wheelsched.core.duration import SECOND
from wheelsched.core.model import FINAL_STATES, RunKey, RunState
from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.partition import partition_of
from wheelsched.core.state import move_run
from wheelsched.logs import about_run
from wheelsched.ports import Retry, Settled
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.context import Context
from wheelsched.shard.patience import InParts
from wheelsched.shard.results import Result, Verdict
from wheelsched.shard.retries import Retries

log = structlog.get_logger("wheelsched.shard")

BATCH = 1_000
LINGER_NS = 20_000_000  # how long the first result of a batch waits for others
FINISH_EVERY_US = SECOND  # between two statements that end jobs, unless a batch is full


class Sequels(Struct, frozen=True):
    """What follows after a result was written."""

    ended: Callable[[RunKey], None]
    accepted: Callable[[ArmedRun], None]


class Settle:
    """Writes results. Bounded by what may be in flight: a result is one of those."""

    def __init__(
        self, context: Context, retries: Retries, sequels: Sequels, random: Random
    ) -> None:
        self._context = context
        self._retries = retries
        self._sequels = sequels
        self._random = random
        self._results: deque[Result | Verdict] = deque()
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[UUID] = set()  # jobs without a further due time, and with a run
        self._over: list[UUID] = []  # jobs without either
        self._finished_us = 0

    def put(self, result: Result | Verdict) -> None:
        """Takes a result, to be written soon."""
        if isinstance(result, Verdict):
            self._context.unfinished.judge(result.key)
        self._results.append(result)
        self._is_idle.clear()
        self._arrived.set()

    def finish_later(self, job_id: UUID) -> None:
        """Ends a job when its last run has ended; it has no further due time."""
        if self._context.unfinished.has_any(job_id):
            self._ending.add(job_id)
        else:
            self._over.append(job_id)
            self._arrived.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while True:
            await self._arrived.wait()
            if len(self._results) < BATCH:
                await self._context.clock.sleep(LINGER_NS)
            if self._results:
                await self._write(self._take())
            if not self._results:
                self._is_idle.set()
                await self._finish()
            if not self._results and not self._over:
                self._arrived.clear()

    async def drained(self) -> None:
        """Returns when everything that was put is written."""
        await self._is_idle.wait()

    async def carry(self, runs: Sequence[ArmedRun]) -> None:
        """Writes that this shard brings these runs to their end, whoever owns their partition."""
        settled = [Settled(key=run.key, token=run.token, state=RunState.RUNNING) for run in runs]
        for start in range(0, len(settled), BATCH):
            part = settled[start : start + BATCH]
            await self._insist(part)

    async def _finish(self) -> None:
        """Ends jobs that are over. Results go first: nobody waits for this."""
        now_us = self._context.tenure.now_us()
        is_due = now_us - self._finished_us >= FINISH_EVERY_US or len(self._over) >= BATCH
        if self._over and is_due:
            self._finished_us = now_us
            over, self._over = self._over[:BATCH], self._over[BATCH:]
            await self._context.patience.insist_leased(
                "job.finish", lambda lease: self._context.stores.timers.finish(lease, over)
            )

    def _end(self, key: RunKey) -> None:
        """A run has ended, and perhaps its job with it."""
        self._sequels.ended(key)
        if key.job_id in self._ending and not self._context.unfinished.has_any(key.job_id):
            self._ending.discard(key.job_id)
            self._over.append(key.job_id)

    def _take(self) -> list[Result | Verdict]:
        """A batch, with no run twice: two results of one are written one after the other."""
        taken: dict[RunKey, Result | Verdict] = {}
        while self._results and len(taken) < BATCH and self._results[0].key not in taken:
            result = self._results.popleft()
            taken[result.key] = result
        return list(taken.values())

    async def _write(self, results: Sequence[Result | Verdict]) -> None:
        context = self._context
        settled = [self._decide(result) for result in results]
        started_us = context.tenure.now_us()
        stale, refused = await self._insist(settled)
        context.vitals.store.settles.observe(context.tenure.now_us() - started_us, len(settled))
        for result, written in zip(results, settled, strict=True):
            if isinstance(result, Verdict):
                context.unfinished.written(result.key)
            if written.key in refused:
                continue  # it stays live here: sending it again would be refused again
            if written.key in stale:
                context.vitals.runs.stale_outcomes += 1
                log.info("outcome.stale", **about_run(written.key, written.token))
                if not context.unfinished.has_later(written.key, written.token):
                    self._end(written.key)
            else:
                self._count(written)
                self._follow(result, written)
        await self._pause_gone(
            {
                result.key.job_id: result.run.version
                for result in results
                if isinstance(result, Result) and isinstance(result.outcome, Gone)
            }
        )

    async def _insist(self, settled: Sequence[Settled]) -> InParts[RunKey]:
        return await self._context.patience.insist_in_parts(
            "run.settle", settled, self._settle_part
        )

    async def _settle_part(self, settled: Sequence[Settled]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist(
            "run.settle", lambda: runs.settle(settled), even_if_refused=False
        )

    def _decide(self, result: Result | Verdict) -> Settled:
        now_us = self._context.clock.now_us()
        if isinstance(result, Verdict):
            return Settled(
                key=result.key,
                token=result.token,
                state=result.state,
                finished_at_us=now_us,
                skip_reason=result.skip_reason,
                error=result.error,
            )
        run = result.run
        decided = settlement.decide(
            run.rules.retry,
            result.outcome,
            attempt=run.attempt,
            now_us=now_us,
            random=self._random,
        )
        http_status, error = _told(result.outcome)
        return Settled(
            key=run.key,
            token=run.token,
            state=move_run(RunState.ARMED, decided.event),
            started_at_us=run.started_us,
            finished_at_us=result.finished_us,
            lateness_us=self._lateness_us(run),
            http_status=http_status,
            error=error,
            retry_at_us=decided.retry_at_us,
        )

    def _lateness_us(self, run: ArmedRun) -> int | None:
        """Of a first attempt: how long after its time it went to the socket."""
        if run.started_us is None or not run.is_first:
            return None
        lateness_us = max(run.started_us - run.fire_at_us, 0)
        self._context.vitals.runs.lateness.observe(lateness_us)
        return lateness_us

    def _count(self, written: Settled) -> None:
        runs = self._context.vitals.runs
        runs.entered[written.state] += 1
        runs.retries += written.state is RunState.RETRYING
        if written.skip_reason is not None:
            runs.skipped[written.skip_reason] += 1

    def _follow(self, result: Result | Verdict, written: Settled) -> None:
        context = self._context
        if isinstance(result, Verdict) or written.state in FINAL_STATES:
            self._end(result.key)
        elif not context.tenure.holds(partition_of(result.key.job_id)):
            context.unfinished.end(result.key)  # carried here; its next attempt is its owner's
        elif written.retry_at_us is not None:
            context.unfinished.pause(result.key)
            self._retries.put(Retry(result.key, written.retry_at_us))
        else:
            context.unfinished.pause(result.key)
            self._sequels.accepted(result.run)

    async def _pause_gone(self, gone: Mapping[UUID, int]) -> None:
        """Pauses the jobs whose worker wants no more of them."""
        if gone:
            await self._context.patience.insist_leased(
                "job.pause", lambda lease: self._context.stores.timers.pause_gone(lease, gone)
            )


def _told(outcome: Outcome) -> tuple[int | None, str | None]:
    """What the history says of an outcome: the HTTP status, and the error."""
    match outcome:
        case Succeeded() | Accepted():
            return outcome.http_status, None
        case Failed() | Rejected() | Gone():
            return outcome.http_status, outcome.error
        case never:
            assert_never(never)
