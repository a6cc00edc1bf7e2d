"""The pipeline of one shard: read this first, then one file per stage.

```
acquire ─► sweep ─► load ─► upcoming ─► arm ─► timetable ─► fire ─► results ─► settle
   ▲                 ▲          ▲                │  ▲                             │
listener ────────────┤          └─── retries ◄───┼──┼─────────────────────────────┤
                     │                           ▼  │                             │
                    plan                     revalidate          external runs ◄──┘
```

A stage takes values from queues and puts values on queues. The queues are built first and handed to
the stages. No stage knows another.

There are two wheels, because they answer two questions. `upcoming` holds the next due time of every
job in the coming ten minutes: an id and a time, so that 10 million fit into little memory. *Arm*
takes them some seconds ahead and claims them. `timetable` holds the claimed runs with their
requests, and hands them to *fire* at the due millisecond.

Invariant: one lease, one pipeline, one task group. When the lease is lost, all of its tasks end,
and a new shard with a new id starts from the database.
"""

import asyncio
from random import Random

from wheelsched.core.model import Lane
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.flow import Inbox, Pending
from wheelsched.ports import Dispatcher, ValidateDraft
from wheelsched.shard.arming.arm import Arm
from wheelsched.shard.arming.request_builder import RequestBuilder
from wheelsched.shard.context import Context
from wheelsched.shard.firing.breaker_report import BreakerReport, count_breakers
from wheelsched.shard.firing.fire import Fire
from wheelsched.shard.firing.revalidate import Revalidate
from wheelsched.shard.firing.timetable import DueRuns, Timetable
from wheelsched.shard.loading.hint_freshness import Reloads
from wheelsched.shard.loading.listener import Listen, Listener
from wheelsched.shard.loading.load import Load
from wheelsched.shard.loading.overdue import Overdue
from wheelsched.shard.loading.plan import Planner
from wheelsched.shard.loading.upcoming import Upcoming
from wheelsched.shard.ownership.acquire import Acquire
from wheelsched.shard.ownership.handover import HandOver
from wheelsched.shard.queues import Queues
from wheelsched.shard.recovery.adopt import Adopt
from wheelsched.shard.recovery.external_runs import ExternalRuns
from wheelsched.shard.recovery.sweep import Sweep
from wheelsched.shard.runs.handed_out import HandedOutRuns
from wheelsched.shard.runs.parked import ParkedRuns
from wheelsched.shard.runs.registry import LEAST_BOUND
from wheelsched.shard.settling.finish import EndingJobs, Finish
from wheelsched.shard.settling.results import ResultQueue
from wheelsched.shard.settling.settle import Settle


class Pipeline:
    """The stages of one lease."""

    def __init__(
        self,
        context: Context,
        dispatcher: Dispatcher,
        listen: Listen,
        validate: ValidateDraft,
        random: Random,
    ) -> None:
        self._context = context
        request_builder = RequestBuilder(context, dispatcher)
        self._queues = queues = _make_queues(context, request_builder)

        self._external_runs = ExternalRuns(context, queues)
        self._hand_over = HandOver(context, queues.upcoming.retries, self._external_runs)
        self._acquire = Acquire(context, queues, self._hand_over, dispatcher)
        adopt = Adopt(context, queues, request_builder)
        self._stages = (
            self._acquire,
            Listener(context, queues, listen),
            Sweep(context, queues, request_builder, adopt),
            adopt,
            self._external_runs,
            Planner(context, queues, validate),
            Load(context, queues),
            Revalidate(context, queues, request_builder),
            Arm(context, queues, request_builder),
            Fire(context, dispatcher, queues),
            Settle(context, queues, random),
            Finish(context, queues.ending, queues.results),
            Overdue(context),
            BreakerReport(context, queues.outgoing),
        )

    async def run(self) -> None:
        """Runs all stages until it is cancelled or the lease is lost."""
        async with asyncio.TaskGroup() as tasks:
            for stage in self._stages:
                tasks.create_task(stage.run(), name=type(stage).__name__)
            tasks.create_task(self._keep_gauging(), name="Gauges")

    async def drain(self) -> None:
        """Hands over all partitions, and waits for the runs that are carried to end.

        Runs that workers hold end without this shard, too: their outcomes go to the database.
        """
        context = self._context
        self._acquire.leave()
        await self._hand_over(context.ownership.partitions, is_leaving=True)
        while partitions := context.ownership.partitions:  # gained at the last moment
            await self._hand_over(partitions, is_leaving=True)
        while self._live_count or context.registry.armed_count:
            await context.clock.sleep(50_000_000)
        await self._queues.results.drained()

    @property
    def _live_count(self) -> int:
        """How many live runs must end before the shard leaves."""
        live = self._context.registry.live_count
        if self._context.config.waits_for_workers:
            return live
        return live - len(self._queues.handed_out)

    async def _keep_gauging(self) -> None:
        while True:
            self._gauge()
            await self._context.clock.sleep(self._context.config.watch_us * 1_000)

    def _gauge(self) -> None:
        """Updates the vitals that are measured, not counted."""
        context, vitals, outgoing = self._context, self._context.vitals, self._queues.outgoing
        ownership = context.ownership
        vitals.ownership.trusted_until_us = ownership.now_us() + ownership.trust_left_us
        vitals.ownership.partitions = len(ownership.partitions)
        unready_us = ownership.unready_us().values()
        vitals.ownership.unready_partitions = len(unready_us)
        vitals.ownership.unready_us = max(unready_us, default=0)
        vitals.runs.wheel_timers = len(self._queues.upcoming.due_times)
        vitals.runs.armed = context.registry.armed_count
        vitals.runs.orphans = len(context.registry.orphans)
        vitals.runs.in_flight = outgoing.runs_in_flight
        vitals.runs.queued = {lane: outgoing.queued(lane) for lane in Lane}
        vitals.dispatch.breaker_transitions |= outgoing.breaker_transitions
        counted = count_breakers(outgoing)
        vitals.dispatch.breakers = {each: counted[each] for each in vitals.dispatch.breakers}
        vitals.clock.offset_us = context.clock.offset_us
        vitals.clock.error_us = context.clock.error_us


def _make_queues(context: Context, request_builder: RequestBuilder) -> Queues:
    config, registry = context.config, context.registry
    # The runs that this shard can hold.
    most = max(config.max_armed + config.fairness.in_flight, LEAST_BOUND)
    return Queues(
        reloads=Reloads(),
        upcoming=Upcoming(context.clock.now_us()),
        timetable=Timetable(context.clock),
        due=DueRuns(),
        outgoing=FairQueue(config.fairness, request_builder.weight_of),
        parked=ParkedRuns(config.queue),
        handed_out=HandedOutRuns(),
        doubtful=Inbox(2 * most),
        revalidated=Inbox(most),
        results=ResultQueue(registry, context.clock, config.settle),
        ending=EndingJobs(registry),
        accepted=Inbox(2 * most),
        abandoned=Inbox(2 * most),
        gained=Pending(),
        drafts=asyncio.Event(),
        free_partitions=asyncio.Event(),
    )
