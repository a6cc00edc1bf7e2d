"""Stage *settle*: results are written back, in batches.

Invariant: what was decided about a result is decided once, and written however often the store has
to be asked. What follows from a result follows after it was written: a run that ended makes
room for the next, one that failed waits for its retry, one that was accepted is watched. Two
results of one run are written one after the other, in the order in which they came.

Nobody waits for a write as for a dispatch: while runs that are due are still on their way to the
socket, results wait, for a while.
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
AT_ONCE = 2  # batches being written: the database writes one while another is made or followed
LINGER_NS = 20_000_000  # how long the first result of a batch waits for others
TURN = 100  # results followed up in one turn of the loop
MOST_LINGER_US = SECOND  # how long results give way to runs that are due
FINISH_NS = 1_000_000_000  # how long a job that is over waits for others, unless a batch is full


class Sequels(Struct, frozen=True):
    """What follows after a result was written, and whether to wait with that."""

    ended: Callable[[RunKey], None]
    accepted: Callable[[ArmedRun], None]
    gives_way: Callable[[], bool]


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
        self._writes: set[asyncio.Task[None]] = set()  # under way
        self._writing: set[RunKey] = set()  # the runs in them
        self._arrived = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._ending: set[UUID] = set()  # jobs without a further due time, and with a run
        self._over: deque[UUID] = deque()  # jobs without either
        self._is_over = asyncio.Event()

    def put(self, result: Result | Verdict) -> None:
        """Takes a result, to be written soon."""
        self._results.append(result)
        self._is_idle.clear()
        self._arrived.set()

    def finish_later(self, job_id: UUID) -> None:
        """Ends a job when its last run has ended; it has no further due time."""
        if self._context.unfinished.has_any(job_id):
            self._ending.add(job_id)
        else:
            self._over.append(job_id)
            self._is_over.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_finishing())
            while True:
                await self._arrived.wait()
                await self._linger()
                await self._write_some(tasks)
                if not self._results:
                    self._is_idle.set()
                    self._arrived.clear()

    async def _linger(self) -> None:
        """Waits for company, and until what is due is on its way."""
        clock, tenure = self._context.clock, self._context.tenure
        if len(self._results) < BATCH:
            await clock.sleep(LINGER_NS)
        until_us = tenure.now_us() + MOST_LINGER_US
        while self._sequels.gives_way() and tenure.now_us() < until_us:
            await clock.sleep(LINGER_NS)

    async def _write_some(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to write a batch; ends when all are written, or when there is work for another."""
        batch = self._take()
        if batch:
            write = tasks.create_task(self._write(batch))
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        most = AT_ONCE if batch and len(self._results) >= BATCH else 1
        while len(self._writes) >= most:
            await asyncio.wait(self._writes, return_when=asyncio.FIRST_COMPLETED)

    async def drained(self) -> None:
        """Returns when everything that was put is written."""
        await self._is_idle.wait()

    async def carry(self, runs: Sequence[ArmedRun]) -> None:
        """Writes that this shard brings these runs to their end, whoever owns their partition."""
        settled = [Settled(key=run.key, token=run.token, state=RunState.RUNNING) for run in runs]
        for start in range(0, len(settled), BATCH):
            part = settled[start : start + BATCH]
            await self._insist(part)

    async def _keep_finishing(self) -> None:
        """Ends jobs that are over. Results go first: nobody waits for this."""
        clock = self._context.clock
        while True:
            await self._is_over.wait()
            await clock.sleep(FINISH_NS if len(self._over) < BATCH else LINGER_NS)
            if len(self._results) >= BATCH:
                continue
            over = [self._over.popleft() for _ in range(min(BATCH, len(self._over)))]
            if not self._over:
                self._is_over.clear()
            await self._finish(over)

    async def _finish(self, job_ids: Sequence[UUID]) -> None:
        timers = self._context.stores.timers
        await self._context.patience.insist_leased(
            "job.finish", lambda lease: timers.finish(lease, job_ids)
        )

    def _end(self, key: RunKey) -> None:
        """A run has ended, and perhaps its job with it."""
        self._sequels.ended(key)
        if key.job_id in self._ending and not self._context.unfinished.has_any(key.job_id):
            self._ending.discard(key.job_id)
            self._over.append(key.job_id)
            self._is_over.set()

    def _take(self) -> list[Result | Verdict]:
        """A batch of which no run is in it twice, or being written."""
        taken: dict[RunKey, Result | Verdict] = {}
        results, writing = self._results, self._writing
        while results and len(taken) < BATCH:
            key = results[0].key
            if key in taken or key in writing:
                break
            taken[key] = results.popleft()
        return list(taken.values())

    async def _write(self, results: Sequence[Result | Verdict]) -> None:
        keys = [result.key for result in results]
        self._writing.update(keys)
        try:
            await self._write_batch(results)
        finally:
            self._writing.difference_update(keys)

    async def _write_batch(self, results: Sequence[Result | Verdict]) -> None:
        context = self._context
        now_us = context.clock.now_us()
        settled = [self._decide(result, now_us) for result in results]
        started_us = context.tenure.now_us()
        answer = await self._insist(settled)
        stale, refused = set(answer.answers), answer.refused
        context.vitals.store.settles.observe(context.tenure.now_us() - started_us, len(settled))
        for start in range(0, len(results), TURN):
            for result, written in zip(
                results[start : start + TURN], settled[start : start + TURN], strict=True
            ):
                self._written(result, written, stale=stale, refused=refused)
            await context.clock.sleep(0)
        await self._pause_gone(
            {
                result.key.job_id: result.run.version
                for result in results
                if isinstance(result, Result) and isinstance(result.outcome, Gone)
            }
        )

    def _written(
        self,
        result: Result | Verdict,
        written: Settled,
        *,
        stale: set[RunKey],
        refused: set[RunKey],
    ) -> None:
        if written.key in refused:
            return  # it stays live here: sending it again would be refused again
        if written.key in stale:
            self._context.vitals.runs.stale_outcomes += 1
            log.info("outcome.stale", **about_run(written.key, written.token))
            self._end(written.key)
        else:
            self._count(written)
            self._follow(result, written)

    async def _insist(self, settled: Sequence[Settled]) -> InParts[RunKey]:
        return await self._context.patience.insist_in_parts(
            "run.settle", settled, self._settle_part
        )

    async def _settle_part(self, settled: Sequence[Settled]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._context.patience.insist(
            "run.settle", lambda: runs.settle(settled), even_if_refused=False
        )

    def _decide(self, result: Result | Verdict, now_us: int) -> Settled:
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
