"""Watches runs that a worker or another shard handles, until they end or are abandoned.

Invariant: a worker keeps a run that it accepted until its heartbeat has been missing for the
timeout of the run. A shard keeps a run that it carries while its lease exists. A worker that pulls
keeps a run for its delivery lease, and then like one that accepted it. If there was no heartbeat by
the end of the delivery lease, the attempt has failed; or, if another shard may have handed it out,
the run is adopted.

A heartbeat is missing if it has not changed for a timeout by the machine's clock. The database's
timestamp only shortens the wait, so a step of its clock declares no worker dead.
"""

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import FINAL_STATES, RunKey, RunState
from wheelsched.core.outcome import TransportFailure, classify
from wheelsched.core.partition import partition_of
from wheelsched.flow import yielding
from wheelsched.ports import Checked, Retry
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues
from wheelsched.shard.runs.armed_run import OUTDATED, ArmedRun
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.settling.results import Report

ACCEPTED = 202
HELD = frozenset({RunState.ARMED, RunState.RUNNING})  # the states of a run that is handed out
NOT_READ = -1  # no heartbeat was read yet


class Watched(Struct, eq=False, kw_only=True):
    """A run that its worker, or the shard that carries it, handles."""

    run: ArmedRun
    deadline_us: int  # when to check it, by the machine's clock
    heard_us: int | None = None  # the latest heartbeat, by the database's clock
    carrier: UUID | None = None
    lease_end_us: int | None = None  # a worker that pulls has it, from the hand-out with this lease


class ExternalRuns:
    """Watches runs that are handled elsewhere."""

    def __init__(self, context: Context, queues: Queues) -> None:
        self._context = context
        self._queues = queues
        self._watched: dict[RunKey, Watched] = {}

    def _add(self, run: ArmedRun) -> None:
        """Watches a run that a worker has accepted."""
        deadline_us = self._context.ownership.now_us() + run.rules.timeout_us
        self._watched[run.key] = Watched(run=run, deadline_us=deadline_us)

    def _adopt(self, run: ArmedRun, carrier: UUID | None) -> None:
        """Watches an adopted run that a worker, or the shard that carries it, handles."""
        self._watched[run.key] = Watched(
            run=run,
            deadline_us=self._context.ownership.now_us(),  # at once, to read its heartbeat
            heard_us=NOT_READ,
            carrier=carrier,
        )

    async def forget(self, partitions: Collection[int]) -> None:
        """Stops watching the runs of partitions that are no longer ours, except those that this
        shard has handed out: they are carried. Those that a previous owner may have handed out are
        left to the next one, which waits for their workers again. They stay live until the
        hand-over has let go of their job: no later run of it may be carried beside them."""

        def is_gone(key: RunKey) -> bool:
            return partition_of(key.job_id) in partitions

        for run in self._queues.handed_out.take_adopted(is_gone):
            run.enter(Phase.WITHDRAWN)  # until its job is let go of, no run starts beside it
        async for keys in yielding(self._context.clock, self._watched):
            for key in keys:
                if is_gone(key) and self._queues.handed_out.find(key) is None:
                    self._watched.pop(key, None)

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_accepted())
            tasks.create_task(self._keep_watching())

    async def _take_accepted(self) -> None:
        while True:
            for one in await self._queues.accepted.take():
                if not self._context.ownership.holds(partition_of(one.run.key.job_id)):
                    pass  # its partition was handed over since it was put
                elif one.is_adopted:
                    self._adopt(one.run, one.carrier)
                else:
                    self._add(one.run)

    async def _keep_watching(self) -> None:
        clock, batch = self._context.clock, self._context.config.recovery.look_batch
        while True:
            await clock.sleep(self._context.config.watch_us * 1_000)
            now_us = self._context.ownership.now_us()
            for run in self._queues.handed_out.expired(now_us):
                self._watched[run.key] = Watched(
                    run=run,
                    deadline_us=now_us,
                    lease_end_us=self._queues.handed_out.lease_end_us(run),
                )
            doubtful: list[Watched] = []
            async for some in yielding(clock, self._watched.values()):
                doubtful += [
                    watched
                    for watched in some
                    if watched.deadline_us <= now_us or watched.carrier is not None
                ]
            for start in range(0, len(doubtful), batch):
                await self._check(doubtful[start : start + batch])

    async def _check(self, watched: Sequence[Watched]) -> None:
        keys = [one.run.key for one in watched]
        checked = await self._context.store.revalidate(keys)
        found = {check.run.key: check for check in checked}
        for one in watched:
            check = found.get(one.run.key)
            if self._watched.get(one.run.key) is not one:
                continue  # a later attempt is watched by now
            if one.lease_end_us is not None:
                self._check_pulled(one, check)
            elif check is None or check.run.state is not RunState.RUNNING:
                self._release(one, check)
            elif check.run.token != one.run.token:
                del self._watched[one.run.key]  # accepted again; settle is about to add it
            elif one.carrier is not None and check.run.http_status == ACCEPTED:
                self._add(one.run)  # a worker has accepted it from its carrier
            elif one.carrier is None:
                self._check_heartbeat(one, check)
            elif one.carrier not in self._context.ownership.live_shards:
                self._abandon(one, check)

    def _abandon(self, watched: Watched, check: Checked) -> None:
        """Gives up a run whose carrier is gone. A worker that pulls may still have it."""
        run = watched.run
        del self._watched[run.key]
        if run.route.room is None:
            self._queues.abandoned.put(check.run)
        else:
            run.version = OUTDATED  # it has no payload of its own
            self._context.registry.resume(run)
            self._queues.handed_out.adopt(run, self._context.ownership.now_us())

    def _check_pulled(self, watched: Watched, check: Checked | None) -> None:
        """Checks a run that was handed to a worker."""
        run, handed_out = watched.run, self._queues.handed_out
        if handed_out.lease_end_us(run) != watched.lease_end_us:
            # Its outcome is known, or it was given back, and perhaps handed out once more.
            del self._watched[run.key]
        elif check is None or check.run.token != run.token or check.run.state in FINAL_STATES:
            del self._watched[run.key]
            self._context.registry.withdraw(run)  # its worker is told to stop
        elif check.run.state not in HELD:
            handed_out.discard([run])
            self._retry_later(watched, check)
        elif check.heartbeat_at_us is not None:
            self._check_heartbeat(watched, check)
        elif handed_out.is_adopted(run):
            del self._watched[run.key]
            handed_out.discard([run])
            run.enter(Phase.WITHDRAWN)  # its run stays live, but a hand-over does not carry it
            self._queues.abandoned.put(check.run)
        else:
            self._fail(watched, TransportFailure.WORKER_SILENT)

    def _retry_later(self, watched: Watched, check: Checked) -> None:
        """Lets a run wait for its retry whose worker has reported its failure to the API."""
        key = watched.run.key
        if self._context.ownership.holds(partition_of(key.job_id)):
            self._context.registry.pause(key)
            self._release(watched, check)
        else:
            del self._watched[key]
            self._context.registry.end(key)

    def _release(self, watched: Watched, check: Checked | None) -> None:
        """Stops watching a run that has ended, waits for its next attempt, or is armed for it."""
        key = watched.run.key
        self._watched.pop(key, None)
        if check is None or check.run.state in FINAL_STATES:
            self._context.registry.end(key)
        elif check.run.retry_at_us is not None:
            self._queues.upcoming.retries.put(Retry(key, check.run.retry_at_us))

    def _check_heartbeat(self, watched: Watched, check: Checked) -> None:
        timeout_us = watched.run.rules.timeout_us
        now_us = self._context.clock.now_us()
        heard_us = check.heartbeat_at_us
        if heard_us is not None and check.lease_us is not None:
            timeout_us = check.lease_us  # without a heartbeat, it is that of an earlier attempt
        if heard_us != watched.heard_us:
            watched.heard_us = heard_us
            left_us = (heard_us or 0) + timeout_us - now_us
            if not 0 < left_us <= timeout_us:
                left_us = timeout_us  # no heartbeat yet, or the database's clock was stepped
            watched.deadline_us = self._context.ownership.now_us() + left_us
            return
        self._fail(watched, TransportFailure.HEARTBEAT_MISSED)

    def _fail(self, watched: Watched, failure: TransportFailure) -> None:
        """Ends the attempt of a worker that is silent."""
        run, now_us = watched.run, self._context.clock.now_us()
        del self._watched[run.key]
        self._queues.handed_out.discard([run])
        outcome = classify(failure, now_us=now_us)
        self._queues.results.put(Report(runs=(run,), outcome=outcome, finished_us=now_us))
