"""Stage *fire*: armed runs go out at their time.

Invariant: a run is sent only while the lease is trusted, once its time has come, after overlap
was decided about it, and not before every change that was acknowledged a second earlier has been
heard of: by a fresh listener, or else by looking again.

```
timetable ─► feed ─► clearance ─► fair queue ─► dispatch ─► settle
               └──► recheck ──────┘
```

Everything between the timetable and the socket is done in portions, so that the loop turns in
between: a crowd delays neither the answers of the others nor the next tick.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core.duration import MILLISECOND
from wheelsched.core.model import Lane, RunKey
from wheelsched.core.offset import STEP_NS
from wheelsched.core.outcome import Failed, Outcome, told
from wheelsched.ports import Dispatcher
from wheelsched.shard.armed import ArmedRun, Batch
from wheelsched.shard.breaker import Verdict, judge
from wheelsched.shard.clearance import Clearance
from wheelsched.shard.context import Context
from wheelsched.shard.fairness import FairQueue
from wheelsched.shard.freshness import Freshness
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.timetable import Timetable, Volley

log = structlog.get_logger("wheelsched.shard")

FEED_PORTION = 400  # runs decided about in one turn of the loop
FEED_TENANT = 100  # of them of one tenant before it is the next one's turn
START_PORTION = 32  # requests begun in one turn of the loop
OUR_FAULT = "the request could not be made: a fault of the scheduler, which has logged it"
NOT_KEEPING_UP = "the target is not keeping up: too many runs wait for it"
STEP_US = STEP_NS // 1_000  # by less the clock is not set back, but slewed
FLOWING_US = 100 * MILLISECOND  # after a request was begun, others are about to be


class Outlets(Struct, frozen=True):
    """Where runs go from here: those to settle, and those that are in doubt."""

    settle: Callable[[Report | Ruling], None]
    recheck: Callable[[Sequence[ArmedRun]], None]


class Fire:
    """Sends what is due."""

    def __init__(
        self,
        context: Context,
        dispatcher: Dispatcher,
        queue: FairQueue[Batch],
        freshness: Freshness,
        outlets: Outlets,
    ) -> None:
        self._context = context
        self._dispatcher = dispatcher
        self._queue = queue
        self._freshness = freshness
        self._settle = outlets.settle
        self._recheck = outlets.recheck
        self._clearance = Clearance(context, outlets.settle)
        self._timetable = Timetable(context.clock, self._come_due)
        self._due: dict[UUID, deque[Batch]] = {}
        self._is_feed_planned = False
        self._is_pumping = False
        self._asked: set[asyncio.Future[list[Outcome] | None]] = set()  # what is on its way
        self._broken: asyncio.Future[None] | None = None  # while it runs: what ends it
        # The queue goes by the machine's clock: a step of the database's makes nobody wait.
        self._queue_alarm = context.machine.alarm(self._wake_queue)
        self._queue_wakes_us: int | None = None
        self._started_us = 0  # when a request was begun last, by the machine's clock

    @property
    def has_due(self) -> bool:
        """Whether runs whose time has come are still on their way to the socket.

        Those that wait for a target that is broken, or hangs, are not: nobody waits for them.
        """
        if self._due:
            return True
        is_flowing = self._context.tenure.now_us() - self._started_us < FLOWING_US
        return is_flowing and self._queue.queued(Lane.ON_TIME) > 0

    async def run(self) -> None:
        """Sends until it is cancelled."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            self.pump()
            await self._broken
        finally:
            self._broken = None
            for asked in self._asked:
                asked.cancel()
            self._timetable.close()
            self._queue_alarm.close()

    def add(self, run: ArmedRun) -> None:
        """Sends a run at its time.

        The first attempt of a run that is live is one of a run that has ended unheard, and that a
        person retries; or one that was decided about and not sent. It is decided about anew.
        """
        if run.is_first and self._context.unfinished.is_live(run.key):
            self.ended(run.key)
        self._context.unfinished.arm(run)
        self._timetable.add(run)

    def anchor(self) -> None:
        """Goes on from a clock that was set to another time."""
        self._timetable.anchor()
        unfinished = self._context.unfinished
        for run in unfinished.waiting_ahead_of_time(self._context.clock.now_us()):
            unfinished.take_waiting(run)
            self._timetable.add(run)
        self.pump()

    def clear(self, run: ArmedRun) -> None:
        """A run is as it was: it goes out at its time, or now if it was held back for this.

        A change that was heard of while a run was held back came too late for it: if every change
        held it back once more, a job that changes all the time would never run.
        """
        if not run.is_held:
            return
        run.vouched = self._context.doubts.latest
        run.is_held = False
        live = self._context.unfinished.find(run.key)
        if live is not None and live.armed is run:  # decided about before it was held
            self._put(Batch(run.route, run.lane, run.priority, run.fire_at_us, [run]))
        elif self._is_to_come(run.fire_at_us):
            self._timetable.add(run)
        else:
            self._enqueue([run])
        self.pump()

    def replace(self, old: ArmedRun, new: ArmedRun) -> None:
        """Puts an attempt that was prepared anew in the place of one that was not sent."""
        new.is_followed = old.is_followed
        if old.is_held:
            new.vouched = self._context.doubts.latest
        self._context.unfinished.forget([old])
        if not new.is_first:  # it is live between its attempts too
            self._context.unfinished.pause(old.key)
        self.add(new)

    def withdraw(self, run: ArmedRun) -> None:
        """Does not send a run any more: it was paused, cancelled, or is somebody else's."""
        self._context.unfinished.forget([run])
        self.ended(run.key, run.token)

    def ended(self, key: RunKey, token: int | None = None) -> None:
        """A live run has ended: those of its job that waited for it are decided about again.

        With a token, an attempt has; a later one of the same run goes on.
        """
        self._context.unfinished.end(key, token)
        if ready := self._clearance.call_up(key.job_id):
            self._put_together(ready)
            self.pump()

    def pump(self) -> None:
        """Begins what may be sent now, a portion in each turn of the loop."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _come_due(self, volleys: Sequence[Volley]) -> None:
        for volley in volleys:
            self._due.setdefault(volley.tenant_id, deque()).extend(volley.batches)
        self._feed()

    def _feed(self) -> None:
        """Moves a portion of what is due into the queue, a little of each tenant in turn."""
        fed = 0
        while self._due and fed < FEED_PORTION:
            tenant_id, due = next(iter(self._due.items()))
            del self._due[tenant_id]
            until = fed + FEED_TENANT
            while due and fed < until:
                batch = due.popleft()
                fed += len(batch)
                self._feed_batch(batch)
            if due:
                self._due[tenant_id] = due
        self._pump_portion()
        if self._due and not self._is_feed_planned:
            self._is_feed_planned = True
            asyncio.get_running_loop().call_soon(self._feed_on)

    def _feed_on(self) -> None:
        self._is_feed_planned = False
        self._feed()

    def _feed_batch(self, batch: Batch) -> None:
        is_fresh = self._freshness.covers(batch.fire_at_us)
        runs = self._certain(batch.runs, is_fresh=is_fresh)
        batch.runs = self._clearance.clear(runs, self._context.clock.now_us())
        if batch.runs:
            batch.lane = batch.runs[0].lane
            self._put(batch)

    def _certain(self, runs: Sequence[ArmedRun], *, is_fresh: bool) -> list[ArmedRun]:
        """Those that may go out without another look. The others are held until it was taken."""
        if is_fresh and not self._is_any_suspect(runs):
            return list(runs)
        runs = [run for run in runs if not run.is_withdrawn]
        doubts = self._context.doubts
        doubtful = [
            run for run in runs if not is_fresh or doubts.concern(run.key.job_id, run.vouched)
        ]
        for run in doubtful:
            run.is_held = True
        if doubtful:
            self._recheck(doubtful)
        return [run for run in runs if not run.is_held]

    def _is_any_suspect(self, runs: Sequence[ArmedRun]) -> bool:
        """Whether one of them was withdrawn, or its job has changed: hardly ever has any."""
        doubts = self._context.doubts
        if doubts.jobs and any(doubts.concern(run.key.job_id, run.vouched) for run in runs):
            return True
        return bool([run for run in runs if run.is_withdrawn])

    def _enqueue(self, runs: Sequence[ArmedRun]) -> None:
        """Decides about runs whose time has come, and queues those that may go."""
        there = [run for run in runs if not run.is_withdrawn]
        self._put_together(self._clearance.clear(there, self._context.clock.now_us()))

    def _put_together(self, runs: Sequence[ArmedRun]) -> None:
        """Queues runs, in as few requests as their targets allow."""
        volleys: dict[tuple[UUID, int], Volley] = {}
        for run in runs:
            place = (run.route.tenant_id, run.fire_at_us)
            volleys.setdefault(place, Volley(*place)).add(run)
        for volley in volleys.values():
            for batch in volley.batches:
                self._put(batch)

    def _put(self, batch: Batch) -> None:
        if not self._queue.put(batch):
            refused = Failed(error=NOT_KEEPING_UP)
            self._answered(batch, [refused] * len(batch), self._context.clock.now_us())

    def _pump_on(self) -> None:
        self._is_pumping = False
        self._pump_portion()

    def _pump_portion(self) -> None:
        now_us = self._context.tenure.now_us()
        if self._broken is None or not self._context.tenure.is_trusted:
            return
        for _ in range(START_PORTION):
            batch = self._queue.take(now_us)
            if batch is None:
                self._plan_queue()
                return
            self._started_us = now_us
            self._start(batch)
        self.pump()

    def _plan_queue(self) -> None:
        """Sets the alarm only when it is not set already: that takes longer than all else here."""
        wake_at_us = self._queue.wake_at_us()
        if wake_at_us is not None and wake_at_us != self._queue_wakes_us:
            self._queue_wakes_us = wake_at_us
            self._queue_alarm.set(wake_at_us * 1_000)

    def _wake_queue(self) -> None:
        self._queue_wakes_us = None
        self.pump()

    def _start(self, batch: Batch) -> None:
        """Begins a request, without what was withdrawn or put in doubt while it was queued."""
        batch.runs = self._certain(batch.runs, is_fresh=True)
        if not batch.runs or self._put_back(batch):
            self._queue.done(batch, self._context.tenure.now_us(), None)
            return
        prepared = [run.prepared for run in batch.runs]
        try:
            asked = self._dispatcher.send(batch.route, prepared, partial(self._begin, batch))
        except Exception:  # noqa: BLE001 - which is told there
            self._end(batch, _our_fault(batch), None)
            return
        self._asked.add(asked)
        asked.add_done_callback(partial(self._heard, batch))

    def _put_back(self, batch: Batch) -> bool:
        """Lets a batch wait for its time if that is to come again: the clock was set back."""
        is_early = batch.runs[0].is_first and self._is_to_come(batch.fire_at_us)
        if is_early:
            for run in batch.runs:
                self.add(run)
        return is_early

    def _is_to_come(self, fire_at_us: int) -> bool:
        return fire_at_us - self._context.clock.now_us() > STEP_US

    def _begin(self, batch: Batch) -> bool:
        """Whether all of it is still to be sent, now that there is a connection."""
        if self._is_any_suspect(batch.runs) or not self._context.tenure.is_trusted:
            return False
        started_us = self._context.clock.now_us()
        for run in batch.runs:
            run.started_us = started_us
        return True

    def _heard(self, batch: Batch, asked: asyncio.Future[list[Outcome] | None]) -> None:
        self._asked.discard(asked)
        if self._broken is None or asked.cancelled():
            return
        try:
            outcomes = asked.result()
        except Exception:  # noqa: BLE001 - which is told there
            self._end(batch, _our_fault(batch), None)
            return
        has_begun = batch.runs[0].started_us is not None
        self._end(batch, outcomes, judge(outcomes, has_begun=has_begun) if outcomes else None)

    def _end(
        self, batch: Batch, outcomes: Sequence[Outcome] | None, verdict: Verdict | None
    ) -> None:
        """Takes up what a request came to. If that fails, so does the shard, and another takes up
        what it leaves."""
        assert self._broken is not None
        try:
            self._came_back(batch, outcomes, verdict)
            self.pump()
        except Exception as error:  # noqa: BLE001 - no run is to be forgotten
            if not self._broken.done():
                self._broken.set_exception(error)

    def _came_back(
        self, batch: Batch, outcomes: Sequence[Outcome] | None, verdict: Verdict | None
    ) -> None:
        """After a request. One that did not begin goes again, without what is not to go."""
        now_us = self._context.tenure.now_us()
        if outcomes is None:
            self._queue.done(batch, now_us, None)
            batch.runs = self._certain(batch.runs, is_fresh=True)
            if batch.runs:
                self._put(batch)
            return
        dispatched = self._context.vitals.dispatch
        dispatched.requests += 1
        dispatched.sent_bytes += sum([len(run.prepared.content) for run in batch.runs])
        self._queue.done(batch, now_us, verdict, told(outcomes[0])[1] or "")
        self._answered(batch, outcomes, self._context.clock.now_us())

    def _answered(self, batch: Batch, outcomes: Sequence[Outcome], now_us: int) -> None:
        """Reports those together that came back with the same."""
        assert len(outcomes) == len(batch.runs)
        first = 0
        for outcome, count in _alike(outcomes):
            alike = batch.runs[first : first + count]
            first += count
            if runs := [run for run in alike if not run.is_withdrawn]:
                self._settle(Report(runs=runs, outcome=outcome, finished_us=now_us))


def _alike(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, int]]:
    """Each outcome, and how many in a row are the same: nearly always all of a request."""
    if outcomes.count(outcomes[0]) == len(outcomes):
        return [(outcomes[0], len(outcomes))]
    return [(outcome, len(list(alike))) for outcome, alike in groupby(outcomes)]


def _our_fault(batch: Batch) -> list[Outcome]:
    """The outcomes when making a request, or reading its answer, has raised: in the handler of
    that. One request must never end the shard."""
    log.exception("request.failed", origin=batch.route.origin)
    return [Failed(error=OUR_FAULT)] * len(batch)
