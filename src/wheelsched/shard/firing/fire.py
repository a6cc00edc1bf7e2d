"""Stage *fire*: sends armed runs when they are due.

```
registry.armed ─► timetable ─► due ─► admission ─► outgoing ─► sender ─► results
                                └► doubtful ─► revalidated ─┘
```

This file goes from the timetable through admission to the queue of requests, `send.py` from there
to the results.

Invariant: *fire* sends a run only when it is due, while the lease is trusted, and after overlap has
let it through. Every change that was acknowledged a second earlier applies: either the listener is
fresh, or the run was revalidated.

All work between the timetable and the socket is done in slices, and the event loop runs in between:
a hot second delays neither the responses of other runs nor the next tick.
"""

import asyncio
from collections.abc import Iterable, Sequence
from uuid import UUID

from wheelsched.core.model import Lane, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.partition import partition_of
from wheelsched.core.policies import overlap
from wheelsched.core.policies.policy import OnMisfire, OnOverlap
from wheelsched.ports import Dispatcher
from wheelsched.shard.context import Context
from wheelsched.shard.firing.hand_outs import HandOuts
from wheelsched.shard.firing.send import DoubtfulRuns, Sender
from wheelsched.shard.firing.timetable import DueGroup
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import ArmedRun, Batch
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.settling.results import ResultQueue, Ruling

_ARMED = Phase.ARMED  # looked up once: half a million runs pass in one second


class Fire:
    """Sends the runs that are due.

    The path from the alarm to the socket consists of calls, not tasks: see `Timetable`. Everything
    that can wait for the next loop iteration comes through a queue, which `run` reads.
    """

    def __init__(self, context: Context, dispatcher: Dispatcher, queues: Queues) -> None:
        self._context = context
        self._config = context.config.fire
        self._queues = queues
        self._timetable = queues.timetable
        self._timetable.on_due = self._come_due
        self._admission = Admission(context, queues.results)
        self._doubtful = DoubtfulRuns(context, queues)
        self._sender = Sender(context, dispatcher, queues, self._doubtful)
        self._hand_outs = HandOuts(context, dispatcher, queues, self._sender)
        self._is_admitting = False  # in the next iteration of the loop

    async def run(self) -> None:
        """Sends until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sender.run())
                tasks.create_task(self._hand_outs.run())
                tasks.create_task(self._take_armed())
                tasks.create_task(self._take_revalidated())
                tasks.create_task(self._take_freed())
        finally:
            self._timetable.close()

    async def _take_armed(self) -> None:
        """Adds armed runs to the timetable."""
        while True:
            for run in await self._context.registry.armed.take():
                if run.phase is _ARMED:
                    self._timetable.add(run)

    async def _take_revalidated(self) -> None:
        """Admits runs that were in doubt and proved to be current.

        A change that arrives while a run is in doubt comes too late for it. If every change held it
        back once more, a job that changes all the time would never run.
        """
        while True:
            for run in await self._queues.revalidated.take():
                match run.phase:
                    case Phase.SUSPENDED:
                        run.enter(Phase.ADMITTED)
                        wait = self._doubtful.waits.pop(run, None)
                        if wait is not None:
                            self._sender.wait_again(run, wait)
                            continue
                        self._sender.put(
                            Batch(run.route, run.lane, run.priority, run.fire_at_us, [run])
                        )
                    case Phase.HELD:
                        self._release(run)
                    case _:
                        pass  # withdrawn meanwhile
            self._sender.start_soon()

    def _release(self, run: ArmedRun) -> None:
        """Admits a run that was held, unless the clock was set back meanwhile."""
        self._context.registry.release(run)
        if run.fire_at_us > self._context.clock.now_us():
            run.enter(Phase.ARMED)
            self._timetable.add(run)
        else:
            self._admit([run])

    async def _take_freed(self) -> None:
        """Decides again about the waiting runs of a job after one of its runs has ended."""
        while True:
            for job_id in await self._context.registry.freed.take():
                if ready := self._admission.admit_waiting(job_id):
                    self._enqueue_together(ready)
                    self._sender.start_soon()

    def _come_due(self, groups: Sequence[DueGroup]) -> None:
        self._queues.due.put(groups)
        self._sender.do(self._admit_some)

    def _admit_some(self) -> None:
        """Moves a slice of the due runs into the fair queue, and starts to send them."""
        due = self._queues.due
        for batch in due.take(self._config.admit_slice, self._config.admit_per_tenant):
            is_fresh = self._context.hint_freshness.covers(batch.fire_at_us)
            runs = self._doubtful.hold(batch, is_fresh=is_fresh)
            batch.runs = self._admission.admit(runs, self._context.clock.now_us())
            if batch.runs:
                batch.lane = batch.runs[0].lane
                self._sender.put(batch)
        self._sender.start_some()
        if due and not self._is_admitting:
            self._is_admitting = True
            asyncio.get_running_loop().call_soon(self._admit_next)

    def _admit_next(self) -> None:
        self._is_admitting = False
        self._sender.do(self._admit_some)

    def _admit(self, runs: Sequence[ArmedRun]) -> None:
        """Decides about runs that are due, and queues those that may go."""
        self._enqueue_together(self._admission.admit(runs, self._context.clock.now_us()))

    def _enqueue_together(self, runs: Sequence[ArmedRun]) -> None:
        """Queues runs, in as few requests as their targets allow."""
        groups: dict[tuple[UUID, int], DueGroup] = {}
        for run in runs:
            place = (run.route.tenant_id, run.fire_at_us)
            groups.setdefault(place, DueGroup(*place)).add(run)
        for group in groups.values():
            for batch in group.batches:
                self._sender.put(batch)


class Admission:
    """Decides whether a run that is due is sent, waits for earlier runs of its job, or is skipped.

    An admitted run is live from then on. If earlier runs of its job are unfinished, overlap
    decides, and decides again when one of them has ended. A run does not overtake an earlier run of
    its job that is held for revalidation. If the run is past its grace, the misfire policy decides.
    A run that is skipped or cancelled is settled at once.
    """

    def __init__(self, context: Context, results: ResultQueue) -> None:
        self._context = context
        self._results = results

    def admit(self, runs: Iterable[ArmedRun], now_us: int) -> list[ArmedRun]:
        """The runs that go now."""
        begin_alone, decide = self._context.registry.begin_alone, self._decide
        return [
            run
            for run in runs
            if (_is_in_grace(run, now_us) and begin_alone(run)) or decide(run, now_us)
        ]

    def _decide(self, run: ArmedRun, now_us: int, *, has_waited: bool = False) -> bool:
        """Whether a run goes now. If not, it waits for earlier runs, or is skipped.

        A run past its grace goes to the late lane, but keeps its place among the waiting runs of
        its job.
        """
        registry = self._context.registry
        is_late = run.is_first and not _is_in_grace(run, now_us)
        if is_late and self._is_misfire(run):
            self._skip(run, SkipReason.MISFIRE_SKIP)
            return False
        if is_late and not has_waited:
            run.lane = Lane.LATE
        if run.is_first and registry.must_wait(run):
            registry.wait(run)
            return False
        if not run.is_first or registry.is_idle(run.key.job_id):
            registry.begin(run)
            return True
        decision = overlap.decide(
            run.rules.overlap,
            trigger=run.trigger,
            lane=run.lane,
            live=registry.live_keys(run.key.job_id),
            ahead=registry.waiting_ahead_of(run),
            settling=self._count_settling(run),
        )
        match decision:
            case overlap.Fire():
                for key in decision.cancel:
                    self._cancel(key)
                registry.begin(run)
                return True
            case overlap.Queue():
                registry.wait(run)
                return False
            case overlap.Skip():
                self._skip(run, decision.reason)
                return False

    def admit_waiting(self, job_id: UUID) -> list[ArmedRun]:
        """The waiting runs of a job that go now.

        If one has to wait on, so do those behind it.
        """
        registry = self._context.registry
        now_us = self._context.clock.now_us()
        ready = []
        while (run := registry.first_waiting(job_id)) is not None:
            registry.take_waiting(run)
            if self._decide(run, now_us, has_waited=True):
                ready.append(run)
                if not _is_in_grace(run, now_us):
                    run.lane = Lane.LATE
            elif registry.first_waiting(job_id) is run:
                break
        return ready

    def _count_settling(self, run: ArmedRun) -> int:
        """The live runs of its job whose outcome waits to be written. Only `skip` asks, which has
        hardly ever more than one live run."""
        if run.rules.overlap.policy is not OnOverlap.SKIP:
            return 0
        return self._context.registry.count_settling(run.key.job_id)

    def _is_misfire(self, run: ArmedRun) -> bool:
        """Whether the misfire policy of a run skips it once it is past its grace."""
        if run.lane is Lane.LATE:
            return False
        if not self._context.ownership.holds(partition_of(run.key.job_id)):
            return False  # carried across a hand-over: it is sent in any case
        is_scheduled = run.trigger is Trigger.SCHEDULE
        return is_scheduled and run.rules.misfire.policy is OnMisfire.SKIP

    def _skip(self, run: ArmedRun, reason: SkipReason) -> None:
        self._context.registry.disarm(run)
        run.enter(Phase.SETTLING)
        self._results.put(
            Ruling(key=run.key, token=run.token, state=RunState.SKIPPED, skip_reason=reason)
        )

    def _cancel(self, key: RunKey) -> None:
        """Ends a live run in favour of a later one. A response that still comes is ignored, and a
        next attempt that is already claimed is not sent."""
        registry = self._context.registry
        live = registry.find(key)
        assert live is not None
        token = live.token
        if live.armed is not None:
            registry.ignore(live.armed)
        if (armed := registry.find_armed(key)) is not None:
            registry.forget([armed])
            token = armed.token
        registry.end(key, live.token)
        self._results.put(Ruling(key=key, token=token, state=RunState.CANCELLED))


def _is_in_grace(run: ArmedRun, now_us: int) -> bool:
    return now_us - run.fire_at_us <= run.rules.misfire.grace_us
