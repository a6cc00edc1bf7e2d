"""Stage *fire*: armed runs go out at their time.

Invariant: a run is sent only while the lease is trusted, once its time has come, after overlap
was decided about it, and not before every change that was acknowledged a second earlier has been
heard of: by a fresh listener, or else by looking again.

```
timetable ─► feed ─► overlap ─► fair queue ─► dispatch ─► settle
               └──► recheck ─────┘
```

Everything between the timetable and the socket is done in portions, so that the loop turns in
between: a crowd delays neither the answers of the others nor the next tick.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

import structlog
from msgspec import Struct

from wheelsched.core import overlap
from wheelsched.core.model import Lane, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.outcome import Failed, Outcome
from wheelsched.core.partition import partition_of
from wheelsched.core.policy import OnMisfire
from wheelsched.ports import Dispatcher
from wheelsched.shard.armed import ArmedRun, Batch
from wheelsched.shard.context import Context
from wheelsched.shard.fairness import FairQueue
from wheelsched.shard.freshness import Freshness
from wheelsched.shard.portions import in_portions
from wheelsched.shard.reports import Report, Ruling
from wheelsched.shard.timetable import Timetable, Volley
from wheelsched.shard.unfinished import LiveRun

log = structlog.get_logger("wheelsched.shard")

FEED_PORTION = 400  # runs decided about in one turn of the loop
FEED_TENANT = 100  # of them of one tenant before it is the next one's turn
START_PORTION = 32  # requests begun in one turn of the loop
OUR_FAULT = "the request could not be made: a fault of the scheduler, which has logged it"
NOT_KEEPING_UP = "the target is not keeping up: too many runs wait for it"


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
        self._timetable = Timetable(context.clock, self._come_due)
        self._due: dict[UUID, deque[Batch]] = {}
        self._is_feeding = False
        self._is_pumping = False
        self._tasks: asyncio.TaskGroup | None = None
        # The queue goes by the machine's clock: a step of the database's makes nobody wait.
        self._queue_alarm = context.machine.alarm(self.pump)

    @property
    def is_feeding(self) -> bool:
        """Whether runs whose time has come are still on their way into the queue."""
        return bool(self._due)

    async def run(self) -> None:
        """Sends until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.pump()
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            self._timetable.close()
            self._queue_alarm.close()

    def add(self, run: ArmedRun) -> None:
        """Sends a run at its time."""
        self._context.unfinished.arm(run)
        self._timetable.add(run)

    def anchor(self) -> None:
        """Goes on from a clock that was set to another time."""
        self._timetable.anchor()
        self.pump()

    def doubt(self, job_id: UUID) -> None:
        """A job has changed: nothing of it is sent before it was looked at again."""
        for run in self._unsent(job_id):
            run.is_doubtful = True

    def clear(self, run: ArmedRun) -> None:
        """A run is as it was: it goes out at its time, or now if it was held back for this."""
        run.is_doubtful = False
        if not run.is_held:
            return
        run.is_held = False
        if self._context.unfinished.is_live(run.key):  # decided about before it was held
            self._put(Batch(run.route, run.lane, run.priority, run.fire_at_us, [run]))
        else:
            self._enqueue([run])
        self.pump()

    def replace(self, old: ArmedRun, new: ArmedRun) -> None:
        """Puts an attempt that was prepared anew in the place of one that was not sent."""
        self._context.unfinished.forget([old])
        if new.is_first:
            self._context.unfinished.end(old.key)
        else:  # it is live between its attempts too
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
        unfinished = self._context.unfinished
        unfinished.end(key, token)
        if unfinished.first_waiting(key.job_id) is not None:
            self._call_up(key.job_id)
            self.pump()

    async def let_go(self, partitions: Collection[int], until_us: int) -> list[ArmedRun]:
        """Forgets what is armed for these partitions, except what it carries to its end.

        That is what was sent, and what is due by `until_us` with nothing of its job in its way.
        What is sent meanwhile was armed when this began: it is met as one or the other.
        """
        carried: dict[RunKey, ArmedRun] = {}
        async for job_ids in in_portions(self._context.clock, self._context.unfinished.job_ids()):
            for job_id in job_ids:
                if partition_of(job_id) in partitions:
                    self._let_go_of(job_id, until_us, carried)
        return list(carried.values())

    def _let_go_of(self, job_id: UUID, until_us: int, carried: dict[RunKey, ArmedRun]) -> None:
        unfinished = self._context.unfinished
        is_clear = unfinished.is_idle(job_id)
        for run in unfinished.armed_of(job_id):
            if run.key in carried:
                continue  # the job was looked at before
            if run.fire_at_us <= until_us and (is_clear or not run.is_first):
                is_clear = False  # overlap decides about the next
                carried[run.key] = run
            else:
                unfinished.forget([run])
        for live in unfinished.live_of(job_id):
            if live.armed is None:
                unfinished.end(live.key)
            else:
                carried[live.key] = live.armed

    def pump(self) -> None:
        """Begins what may be sent now, a portion in each turn of the loop."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump_portion)

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
        if self._due and not self._is_feeding:
            self._is_feeding = True
            asyncio.get_running_loop().call_soon(self._feed_on)

    def _feed_on(self) -> None:
        self._is_feeding = False
        self._feed()

    def _feed_batch(self, batch: Batch) -> None:
        is_fresh = self._freshness.covers(batch.fire_at_us)
        runs = self._certain(batch.runs, is_fresh=is_fresh)
        now_us = self._context.clock.now_us()
        batch.runs = [run for run in runs if self._decide(run, now_us)]
        if batch.runs:
            batch.lane = batch.runs[0].lane
            self._put(batch)

    def _certain(self, runs: Sequence[ArmedRun], *, is_fresh: bool) -> list[ArmedRun]:
        """Those that may go out without another look. The others are held until it was taken."""
        runs = [run for run in runs if not run.is_withdrawn]
        doubtful = [run for run in runs if run.is_doubtful] if is_fresh else runs
        if not doubtful:
            return runs
        for run in doubtful:
            run.is_held = True
        self._recheck(doubtful)
        return [run for run in runs if not run.is_held]

    def _enqueue(self, runs: Sequence[ArmedRun]) -> None:
        """Decides about runs whose time has come, and queues those that may go."""
        now_us = self._context.clock.now_us()
        self._put_together(
            [run for run in runs if not run.is_withdrawn and self._decide(run, now_us)]
        )

    def _call_up(self, job_id: UUID) -> None:
        """Decides again about the runs of a job that waited for their turn, up to the first one
        that has to wait on: so do those behind it."""
        unfinished = self._context.unfinished
        now_us = self._context.clock.now_us()
        ready = []
        while (run := unfinished.first_waiting(job_id)) is not None:
            unfinished.take_waiting(run)
            if self._decide(run, now_us):
                ready.append(run)
            elif unfinished.first_waiting(job_id) is run:
                break
        self._put_together(ready)

    def _put_together(self, runs: Sequence[ArmedRun]) -> None:
        """Queues runs, in as few requests as their targets allow."""
        volleys: dict[UUID, Volley] = {}
        for run in runs:
            tenant_id = run.route.tenant_id
            volleys.setdefault(tenant_id, Volley(tenant_id, run.fire_at_us)).add(run)
        for volley in volleys.values():
            for batch in volley.batches:
                self._put(batch)

    def _decide(self, run: ArmedRun, now_us: int) -> bool:
        """Whether a run goes out now. If not, it waits for its turn, or is skipped."""
        unfinished = self._context.unfinished
        is_on_time = now_us - run.fire_at_us <= run.rules.misfire.grace_us
        if is_on_time and unfinished.begin_alone(run):
            return True
        if self._is_misfire(run, now_us):
            self._skip(run, SkipReason.MISFIRE_SKIP)
            return False
        if not run.is_first or unfinished.is_idle(run.key.job_id):
            unfinished.begin(run)
            return True
        live = unfinished.live_of(run.key.job_id)
        decision = overlap.decide(
            run.rules.overlap,
            trigger=run.trigger,
            lane=run.lane,
            live=[other.key for other in live],
            ahead=unfinished.waiting_ahead_of(run),
        )
        match decision:
            case overlap.Fire():
                for other in live[: len(decision.cancel)]:
                    self._cancel(other)
                unfinished.begin(run)
                return True
            case overlap.Queue():
                unfinished.wait(run)
                return False
            case overlap.Skip():
                self._skip(run, decision.reason)
                return False

    def _is_misfire(self, run: ArmedRun, now_us: int) -> bool:
        """Whether a run that was held back is past its grace, and its policy is to skip.

        One whose policy is another goes out, but overtakes nobody.
        """
        misfire = run.rules.misfire
        if now_us - run.fire_at_us <= misfire.grace_us or not run.is_first or run.lane is Lane.LATE:
            return False
        run.lane = Lane.LATE
        if not self._context.tenure.holds(partition_of(run.key.job_id)):
            return False  # carried over a hand-over: it is sent, whatever happens
        return run.trigger is Trigger.SCHEDULE and misfire.policy is OnMisfire.SKIP

    def _put(self, batch: Batch) -> None:
        now_us = self._context.clock.now_us()
        if not self._queue.put(batch):
            refused = Failed(error=NOT_KEEPING_UP)
            self._answered(batch, [refused] * len(batch), now_us)

    def _pump_portion(self) -> None:
        self._is_pumping = False
        now_us = self._context.tenure.now_us()
        if self._tasks is None or not self._context.tenure.is_trusted:
            return
        for _ in range(START_PORTION):
            batch = self._queue.take(now_us)
            if batch is None:
                self._plan_queue()
                return
            self._start(batch)
        self.pump()

    def _plan_queue(self) -> None:
        wake_at_us = self._queue.wake_at_us()
        if wake_at_us is not None:
            self._queue_alarm.set(wake_at_us * 1_000)

    def _start(self, batch: Batch) -> None:
        """Begins a request, without what was withdrawn or put in doubt while it was queued."""
        assert self._tasks
        batch.runs = self._certain(batch.runs, is_fresh=True)
        if batch.runs:
            self._tasks.create_task(self._dispatch(batch))
        else:
            self._queue.done(batch, self._context.tenure.now_us(), failed=None)

    async def _dispatch(self, batch: Batch) -> None:
        clock = self._context.clock

        def begin() -> bool:
            """Whether all of it is still to be sent, now that there is a connection."""
            for run in batch.runs:
                if run.is_withdrawn or run.is_doubtful:
                    return False
            if not self._context.tenure.is_trusted:
                return False
            started_us = clock.now_us()
            for run in batch.runs:
                run.started_us = started_us
            return True

        prepared = [run.prepared for run in batch.runs]
        outcomes: Sequence[Outcome] | None
        try:
            outcomes = await self._dispatcher.send(batch.route, prepared, begin)
        except Exception:  # one request must never end the shard
            log.exception("request.failed", origin=batch.route.origin)
            outcomes = [Failed(error=OUR_FAULT)] * len(batch)
        self._came_back(batch, outcomes)
        self.pump()

    def _came_back(self, batch: Batch, outcomes: Sequence[Outcome] | None) -> None:
        """After a request. One that did not begin goes again, without what is not to go."""
        now_us = self._context.tenure.now_us()
        if outcomes is None:
            self._queue.done(batch, now_us, failed=None)
            batch.runs = self._certain(batch.runs, is_fresh=True)
            if batch.runs:
                self._put(batch)
            return
        dispatched = self._context.vitals.dispatch
        dispatched.requests += 1
        dispatched.sent_bytes += sum(len(run.prepared.content) for run in batch.runs)
        has_failed = any(isinstance(outcome, Failed) for outcome in outcomes)
        self._queue.done(batch, now_us, failed=has_failed)
        self._answered(batch, outcomes, self._context.clock.now_us())

    def _answered(self, batch: Batch, outcomes: Sequence[Outcome], now_us: int) -> None:
        for run, outcome in zip(batch.runs, outcomes, strict=True):
            if not run.is_withdrawn:
                self._settle(Report(run=run, outcome=outcome, finished_us=now_us))

    def _skip(self, run: ArmedRun, reason: SkipReason) -> None:
        self._context.unfinished.disarm(run)
        self._settle(
            Ruling(key=run.key, token=run.token, state=RunState.SKIPPED, skip_reason=reason)
        )

    def _cancel(self, live: LiveRun) -> None:
        """Ends a live run in favour of a later one. What its worker still says is not heard."""
        if live.armed is not None:
            live.armed.is_withdrawn = True
        self._context.unfinished.end(live.key, live.token)
        self._settle(Ruling(key=live.key, token=live.token, state=RunState.CANCELLED))

    def _unsent(self, job_id: UUID) -> list[ArmedRun]:
        unfinished = self._context.unfinished
        queued = [live.armed for live in unfinished.live_of(job_id) if live.armed]
        armed = unfinished.armed_of(job_id)
        return [run for run in (*armed, *queued) if run.started_us is None]
