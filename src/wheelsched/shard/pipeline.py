"""The pipeline of one shard: read this first.

```
acquire ─► sweep ─► load ─► arm ─► fire ─► settle
   │                 ▲       ▲       │        │
listener ──► plan ───┤       └─ retries ◄─────┤
   └──► recheck ─────┴── in doubt ◄──┘        └─► ended: the next of its job
```

Invariant: one lease, one pipeline, one task group. When the lease is lost everything that rests on
it ends, and a new shard with a new id begins from what the database says.
"""

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from uuid import UUID

from wheelsched.core.model import Lane, RunKey
from wheelsched.core.partition import partition_of
from wheelsched.ports import Dispatcher, Hint, Judge, Retry
from wheelsched.shard import acquire, arm, fire, listener, load, plan, recheck, settle, sweep
from wheelsched.shard.armed import ArmedRun, Batch
from wheelsched.shard.context import Context
from wheelsched.shard.due_times import DueTimes
from wheelsched.shard.fairness import FairQueue
from wheelsched.shard.freshness import Freshness
from wheelsched.shard.handover import HandOver
from wheelsched.shard.left_behind import Reminder
from wheelsched.shard.overdue import Overdue
from wheelsched.shard.portions import in_portions
from wheelsched.shard.preparation import Preparation
from wheelsched.shard.retries import Retries
from wheelsched.shard.telling import Telling, count_breakers


class Pipeline:
    """The stages, put together for the time of one lease."""

    def __init__(
        self,
        context: Context,
        dispatcher: Dispatcher,
        listen: listener.Listen,
        judge: Judge,
        random: Random,
    ) -> None:
        self._context = context
        now_us = context.clock.now_us()
        self._due_times = due_times = DueTimes(now_us)
        self._retries = retries = Retries(now_us, self._wake)
        self._preparation = preparation = Preparation(context, dispatcher)
        self._queue: FairQueue[Batch] = FairQueue(context.config.fairness, preparation.weight_of)
        self._telling = Telling(context, self._queue)
        self._freshness = freshness = Freshness()

        self.settle = settle.Settle(
            context,
            retries,
            settle.Sequels(
                self._ended,
                self._accepted,
                self._reload,
                lambda: self.fire.has_due,
            ),
            random,
        )
        self.fire = fire.Fire(
            context,
            dispatcher,
            self._queue,
            freshness,
            fire.Outlets(self.settle.put, self._look_at),
        )
        self.load = load.Load(
            context,
            due_times,
            retries,
            load.Outlets(self._wake, self.settle.finish_later, self._is_crowded),
        )
        self.plan = plan.Planner(context, judge, plan.Outlets(self.load.ask))
        self.arm = arm.Arm(
            context,
            due_times,
            retries,
            preparation,
            arm.Outlets(
                self._add,
                self.load.ask,
                self._look_again,
                self.settle.finish_later,
                self.settle.put,
            ),
        )
        self.recheck = recheck.Recheck(
            context,
            preparation,
            retries,
            recheck.Outlets(
                self.fire.clear,
                self.fire.replace,
                self.fire.withdraw,
                self.fire.ended,
                self.settle.put,
            ),
        )
        self.sweep = sweep.Sweep(
            context,
            preparation,
            retries,
            sweep.Outlets(
                self._add,
                self.settle.put,
                self.fire.ended,
                self.load.load,
                self._remind,
                self._is_crowded,
            ),
        )
        self.overdue = Overdue(context)
        self.hand_over = HandOver(context, self.settle, self._forget)
        self.acquire = acquire.Acquire(
            context,
            acquire.Outlets(
                self._gained, self.hand_over, self.fire.pump, self._anchor, dispatcher.avoid
            ),
        )
        self.listener = listener.Listener(
            context, listen, freshness, listener.Outlets(self._hear, self._hear_everything)
        )

    async def run(self) -> None:
        """Runs every stage until it is cancelled, or the lease is lost."""
        async with asyncio.TaskGroup() as tasks:
            for stage in (
                self.acquire,
                self.listener,
                self.sweep,
                self.plan,
                self.load,
                self.recheck,
                self.arm,
                self.fire,
                self.settle,
                self.overdue,
            ):
                tasks.create_task(stage.run(), name=type(stage).__name__)
            tasks.create_task(self._keep_gauging(), name="Gauges")
            tasks.create_task(self._telling.run(), name="Telling")

    async def drain(self) -> None:
        """Hands everything over, and waits until what is carried has ended."""
        self.acquire.leave()
        await self.hand_over(self._context.tenure.partitions, is_leaving=True)
        while partitions := self._context.tenure.partitions:  # gained at the last moment
            await self.hand_over(partitions, is_leaving=True)
        while self._context.unfinished.live_count or self._context.unfinished.armed_count:
            await self._context.clock.sleep(50_000_000)
        await self.settle.drained()

    def _gained(self, partitions: Collection[int]) -> None:
        self.sweep.gained(partitions)
        self.plan.wake()

    def _add(self, run: ArmedRun) -> None:
        doubts = self._context.doubts
        if self._context.changes.concern(run.key.job_id):
            self.recheck.look_at_job(run.key.job_id)
        elif doubts.jobs:
            run.vouched = doubts.latest
        self.fire.add(run)

    def _ended(self, key: RunKey, token: int) -> None:
        self.fire.ended(key, token)

    def _accepted(self, run: ArmedRun) -> None:
        self.sweep.watch(run)

    def _reload(self, job_id: UUID) -> None:
        self.load.ask(job_id)

    def _look_again(self, keys: Collection[RunKey]) -> None:
        self.recheck.look_at_keys(keys)

    def _look_at(self, runs: Sequence[ArmedRun]) -> None:
        self.recheck.look_at(runs)

    def _remind(self, job_id: UUID, reminder: Reminder) -> None:
        if isinstance(reminder, Retry):
            self._retries.put(reminder)
        else:
            self._due_times.move(job_id, reminder)
        self._wake()

    def _is_crowded(self) -> bool:
        return self.settle.is_crowded

    def _wake(self) -> None:
        self.arm.wake()

    def _hear(self, hint: Hint) -> None:
        if hint.job_id is None:
            self.acquire.look_soon()
        elif self._context.tenure.holds(hint.partition):
            self._context.changes.heard(hint.job_id)
            if self._context.unfinished.has_any(hint.job_id):
                self.recheck.look_at_job(hint.job_id)
            self.load.ask(hint.job_id)
            if hint.is_unplanned:
                self.plan.wake()

    async def _hear_everything(self) -> None:
        self._context.changes.missed()
        self.load.ask_everything()
        self.plan.wake()
        async for job_ids in in_portions(self._context.clock, self._context.unfinished.job_ids()):
            for job_id in job_ids:
                self.recheck.look_at_job(job_id)

    def _anchor(self) -> None:
        """The clock was set to another time."""
        now_us = self._context.clock.now_us()
        self._freshness.lost()
        self._due_times.anchor(now_us)
        self._retries.anchor(now_us)
        self.load.ask_everything()
        self.fire.anchor()

    async def _forget(self, partitions: Collection[int]) -> None:
        async for keys in in_portions(self._context.clock, self._retries):
            for key in keys:
                if partition_of(key.job_id) in partitions:
                    self._retries.discard(key)
        await self.sweep.forget(partitions)

    async def _keep_gauging(self) -> None:
        while True:
            self._gauge()
            await self._context.clock.sleep(self._context.config.watch_us * 1_000)

    def _gauge(self) -> None:
        """Writes what is not counted as it happens."""
        context, vitals = self._context, self._context.vitals
        vitals.tenure.trusted_until_us = context.tenure.now_us() + context.tenure.trust_left_us
        vitals.tenure.partitions = len(context.tenure.partitions)
        unready_us = context.tenure.unready_us().values()
        vitals.tenure.unready_partitions = len(unready_us)
        vitals.tenure.unready_us = max(unready_us, default=0)
        vitals.runs.wheel_timers = len(self._due_times)
        vitals.runs.armed = context.unfinished.armed_count
        vitals.runs.left_behind = len(context.unfinished.left)
        vitals.runs.in_flight = self._queue.runs_in_flight
        vitals.runs.queued = {lane: self._queue.queued(lane) for lane in Lane}
        vitals.dispatch.breaker_transitions |= self._queue.breaker_transitions
        counted = count_breakers(self._queue)
        vitals.dispatch.breakers = {each: counted[each] for each in vitals.dispatch.breakers}
        vitals.clock.offset_us = context.clock.offset_us
        vitals.clock.error_us = context.clock.error_us
