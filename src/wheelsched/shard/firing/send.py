"""Sends queued requests, and reports how they ended.

```
outgoing ─► doubts ─► dispatcher ─┬─► results
                                  └─► handed out
```

Invariant: a request is sent only while the lease is trusted, and without runs that were withdrawn,
are in doubt, or are no longer due. Every run of a request has one outcome, or is queued again, or
was handed to a worker that reports its outcome later.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import structlog

from wheelsched.core.model import RunState
from wheelsched.core.outcome import Failed, HandedOut, Outcome, status_and_error
from wheelsched.fairness.breaker import Verdict, verdict_of
from wheelsched.ports import Dispatcher, Room, Sending
from wheelsched.shard.context import Context
from wheelsched.shard.loading.hint_freshness import NOTICE_US
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import ArmedRun, Batch, Wait
from wheelsched.shard.runs.phase import IN_DOUBT, Phase
from wheelsched.shard.settling.results import Report, Ruling

log = structlog.get_logger("wheelsched.shard")

OUR_FAULT: Final = "internal error: the request could not be sent; see the log of the shard"
TOO_MANY_WAIT: Final = "no worker claimed the run: too many runs of its queue or tenant wait"
NOT_KEEPING_UP: Final = "the target is not keeping up: too many runs are queued for it"

# Members of an enum, looked up once: half a million runs pass in one second.
_SENT, _SETTLING, _WITHDRAWN = Phase.SENT, Phase.SETTLING, Phase.WITHDRAWN


class DoubtfulRuns:
    """Finds runs that must be read again before they are sent, or must not be sent at all.

    A run passes only if it was not withdrawn and its job has not changed since it was read.
    """

    def __init__(self, context: Context, queues: Queues) -> None:
        self._context = context
        self._queues = queues
        self.waits: dict[ArmedRun, Wait] = {}  # of runs that waited for a worker

    def hold(self, batch: Batch, *, is_fresh: bool) -> list[ArmedRun]:
        """Sends doubtful runs to *revalidate*, and returns the others."""
        if is_fresh and not self.is_any_in(batch):
            batch.withdrawals = self._context.registry.withdrawals
            return batch.runs
        doubts = self._context.doubts
        certain: list[ArmedRun] = []
        for run in batch.runs:
            if run.phase is Phase.WITHDRAWN or run.phase in IN_DOUBT:
                continue
            if is_fresh and not doubts.affects(run.key.job_id, run.vouched):
                certain.append(run)
                continue
            if run.phase is Phase.ADMITTED:
                run.enter(Phase.SUSPENDED)
                if batch.wait is not None:
                    self.waits[run] = batch.wait
            else:
                self._context.registry.hold(run)
            self._queues.doubtful.put(run)
        return certain

    def is_any_in(self, batch: Batch) -> bool:
        """Whether one of its runs was withdrawn or its job has changed, which is rare."""
        doubts = self._context.doubts
        if doubts.jobs and any(doubts.affects(run.key.job_id, run.vouched) for run in batch.runs):
            return True
        if batch.withdrawals == self._context.registry.withdrawals:
            return False
        return bool([run for run in batch.runs if run.phase is _WITHDRAWN])


class Sender:
    """Takes requests from the fair queue and sends them, a slice in each iteration of the loop."""

    def __init__(
        self, context: Context, dispatcher: Dispatcher, queues: Queues, doubtful: DoubtfulRuns
    ) -> None:
        self._context = context
        self._config = context.config.fire
        self._dispatcher = dispatcher
        self._queues = queues
        self._doubtful = doubtful
        self._is_starting = False  # in the next iteration of the loop
        self._requests: set[Sending] = set()  # in flight
        self._broken: asyncio.Future[None] | None = None  # while it runs; an error ends the stage
        # The fair queue uses the machine's clock: a step of the database's clock delays no request.
        self._alarm = context.machine.alarm(self._wake)
        self._wakes_us: int | None = None

    async def run(self) -> None:
        """Sends until it is cancelled, or until a step fails."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            self.start_soon()
            await self._broken
        finally:
            self._broken = None
            for request in self._requests:
                request.cancel()
            self._alarm.close()

    def put(self, batch: Batch) -> None:
        """Queues a request."""
        if batch.route.room is not None:
            self._wait_for_workers(batch)
        elif not self._queues.outgoing.put(batch):
            refused = Failed(error=NOT_KEEPING_UP)
            self._report(batch, [refused] * len(batch))

    def _wait_for_workers(self, batch: Batch) -> None:
        """Queues or parks runs until workers take them."""
        now_us = self._context.ownership.now_us()
        until_us = batch.runs[0].claim_by_us or now_us + batch.route.claim_within_us
        batch.wait = Wait(until_us, self._context.clock.now_us())
        if self._queues.parked.must_park(batch, now_us) or not self._queues.outgoing.put(batch):
            for run in self._queues.parked.park(batch):
                self.end_unclaimed(run, TOO_MANY_WAIT)

    def wait_again(self, run: ArmedRun, wait: Wait) -> None:
        """Queues a run in front that was read again before a worker could take it."""
        batch = Batch(run.route, run.lane, run.priority, run.fire_at_us, [run])
        room = run.route.room
        if room is None:  # its job was edited meanwhile
            self.put(batch)
            return
        batch.wait = Wait(wait.until_us, self._context.clock.now_us())
        self._queues.outgoing.put_back(batch)
        self._hold(room, is_held=False)

    def release_held(self) -> None:
        """Opens the rooms whose runs were withdrawn while they were read."""
        waits = self._doubtful.waits
        for run in [run for run in waits if run.phase is not Phase.SUSPENDED]:
            del waits[run]
        held = {run.route.room for run in waits}
        for room in self._queues.outgoing.rooms.known:
            if room.is_held and room not in held:
                self._hold(room, is_held=False)
                self.start_soon()

    def _hold(self, room: Room, *, is_held: bool) -> None:
        if room.is_held is not is_held:
            room.is_held = is_held
            self._queues.outgoing.rooms.changed(room)

    def end_unclaimed(self, run: ArmedRun, error: str) -> None:
        """Ends a run that no worker has taken. The next run of its job may go."""
        registry = self._context.registry
        registry.ignore(run)
        registry.end(run.key, run.token)
        self._queues.results.put(
            Ruling(key=run.key, token=run.token, state=RunState.DEAD, error=error)
        )

    def start_soon(self) -> None:
        """Starts requests in the next iteration of the loop."""
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_next)

    def _start_next(self) -> None:
        self._is_starting = False
        self.do(self.start_some)

    def start_some(self) -> None:
        """Starts a slice of the requests that may be sent."""
        now_us = self._context.ownership.now_us()
        if self._broken is None:
            return
        if not self._context.ownership.is_trusted:
            self._wake_at(now_us + self._config.untrusted_us)
            return
        handed_out = 0
        for _ in range(self._config.start_slice):
            batch = self._queues.outgoing.take(now_us)
            if batch is None:
                if (wake_at_us := self._queues.outgoing.wake_at_us()) is not None:
                    self._wake_at(wake_at_us)
                return
            self._queues.due.flowed_us = now_us
            self._start(batch)
            if batch.wait is not None:
                handed_out += len(batch)
                if handed_out >= self._config.hand_out_slice:
                    break
        self.start_soon()

    def _wake_at(self, when_us: int) -> None:
        """Sets the alarm unless it is set already: setting it is the most expensive part."""
        if when_us != self._wakes_us:
            self._wakes_us = when_us
            self._alarm.set(when_us * 1_000)

    def _wake(self) -> None:
        self._wakes_us = None
        self.start_soon()

    def _start(self, batch: Batch) -> None:
        """Starts a request, without the runs that were withdrawn or put in doubt while queued."""
        is_fresh = batch.wait is None or self._is_fresh(batch.wait)
        batch.runs = self._doubtful.hold(batch, is_fresh=is_fresh)
        if not is_fresh and batch.route.room is not None:
            self._hold(batch.route.room, is_held=True)  # one read for each credit suffices
        if not batch.runs:
            self._queues.outgoing.done(batch, self._context.ownership.now_us(), None)
        elif batch.runs[0].is_first and self._is_early(batch.fire_at_us):
            self._queues.outgoing.done(batch, self._context.ownership.now_us(), None)
            self._arm_again(batch)
        else:
            self._send(batch)

    def _is_fresh(self, wait: Wait) -> bool:
        """Whether every change was noticed that came while the runs waited for a worker."""
        now_us = self._context.clock.now_us()
        return now_us - wait.began_us <= NOTICE_US or self._context.hint_freshness.covers(now_us)

    def _arm_again(self, batch: Batch) -> None:
        """Arms a batch again that is no longer due because the clock was set back.

        Every run passes here before it is sent, wherever it waited when the clock was set back.
        """
        for run in batch.runs:
            self._context.registry.arm(run)

    def _is_early(self, fire_at_us: int) -> bool:
        return fire_at_us > self._context.clock.now_us()

    def _send(self, batch: Batch) -> None:
        prepared = [run.prepared for run in batch.runs]
        try:
            request = self._dispatcher.send(batch.route, prepared, partial(self._begin, batch))
        except Exception:  # noqa: BLE001 - the callee logs it
            self._end(batch, _our_fault(batch), None)
            return
        self._requests.add(request)
        request.add_done_callback(partial(self._request_done, batch))

    def _begin(self, batch: Batch) -> bool:
        """Marks runs as sent once there is a connection. False if one of them must not be sent."""
        if self._doubtful.is_any_in(batch) or not self._context.ownership.is_trusted:
            return False
        started_us = self._context.clock.now_us()
        for run in batch.runs:
            run.started_us = started_us
            run.phase = _SENT
        if batch.wait is not None:
            self._queues.handed_out.add(batch.runs, self._context.ownership.now_us())
        return True

    def _request_done(self, batch: Batch, request: Sending) -> None:
        self._requests.discard(request)
        if self._broken is None or request.cancelled():
            return
        try:
            outcomes = request.result()
        except Exception:  # noqa: BLE001 - the callee logs it
            self._end(batch, _our_fault(batch), None)
            return
        if isinstance(outcomes, HandedOut):
            self.do(partial(self._hand_out_done, batch))
            return
        has_begun = batch.runs[0].started_us is not None
        self._end(batch, outcomes, verdict_of(outcomes, has_begun=has_begun) if outcomes else None)

    def _hand_out_done(self, batch: Batch) -> None:
        """Makes way for the next request: the workers report on their own."""
        self._queues.outgoing.done(batch, self._context.ownership.now_us(), None)
        self.start_soon()

    def _end(
        self, batch: Batch, outcomes: Sequence[Outcome] | None, verdict: Verdict | None
    ) -> None:
        """Handles the end of a request."""
        try:
            if outcomes is None:
                self._try_again(batch)
            else:
                self._finish(batch, outcomes, verdict)
            self.start_soon()
        except Exception as error:  # noqa: BLE001 - the task that runs this stage raises it
            self._break(error)

    def do(self, step: Callable[[], None]) -> None:
        """Takes a step in a callback of the loop."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the task that runs this stage raises it
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Ends the shard, which failed: another one takes over, and no run is forgotten."""
        assert self._broken is not None
        if not self._broken.done():
            self._broken.set_exception(error)

    def _try_again(self, batch: Batch) -> None:
        """Queues a request that was not sent again, without the runs that must not go."""
        self._queues.outgoing.done(batch, self._context.ownership.now_us(), None)
        batch.runs = self._doubtful.hold(batch, is_fresh=True)
        if batch.runs:
            self.put(batch)

    def _finish(self, batch: Batch, outcomes: Sequence[Outcome], verdict: Verdict | None) -> None:
        dispatched = self._context.vitals.dispatch
        dispatched.requests += 1
        dispatched.sent_bytes += sum([len(run.prepared.content) for run in batch.runs])
        error = status_and_error(outcomes[0])[1] or ""
        self._queues.outgoing.done(batch, self._context.ownership.now_us(), verdict, error)
        self._report(batch, outcomes)

    def _report(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        """Reports runs with the same outcome together."""
        assert len(outcomes) == len(batch.runs)
        now_us = self._context.clock.now_us()
        first = 0
        for outcome, count in _group_equal(outcomes):
            equal = batch.runs[first : first + count]
            first += count
            if runs := [run for run in equal if run.phase is not _WITHDRAWN]:
                for run in runs:
                    if run.phase is _SENT:
                        run.phase = _SETTLING
                    else:
                        run.enter(_SETTLING)
                self._queues.results.put(Report(runs=runs, outcome=outcome, finished_us=now_us))


def _group_equal(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, int]]:
    """Groups equal consecutive outcomes; nearly always all outcomes of a request are equal."""
    if outcomes.count(outcomes[0]) == len(outcomes):
        return [(outcomes[0], len(outcomes))]
    return [(outcome, len(list(equal))) for outcome, equal in groupby(outcomes)]


def _our_fault(batch: Batch) -> list[Outcome]:
    """The outcomes of a request that raised an error when it was sent or its response was read. One
    request must never end the shard. Call it in an exception handler."""
    log.exception("request.failed", origin=batch.route.origin)
    return [Failed(error=OUR_FAULT)] * len(batch)
