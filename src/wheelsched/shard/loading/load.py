"""Stage *load*: reads the due times of the coming minutes from the database into the wheel.

Invariant: every due time within the horizon of our partitions is in the wheel, or armed, at the
latest two refreshes after it was written, and at once if a hint arrives. Loading is idempotent.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from wheelsched.ports import NEVER_US, Horizon, Retry
from wheelsched.shard.context import Context
from wheelsched.shard.queues import Queues


class Load:
    """Fills the wheel."""

    def __init__(self, context: Context, queues: Queues) -> None:
        self._context = context
        self._config = context.config.load
        self._queues = queues
        self._due_times = queues.upcoming.due_times
        self._retries = queues.upcoming.retries
        self._large_jobs: dict[UUID, int] = {}  # with very many retries; a hint reads those since
        self._alarm = context.machine.alarm(self._refresh)
        self._refresh_by_ns = 0

    async def run(self) -> None:
        """Loads until it is cancelled."""
        try:
            self._schedule_refresh()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._load_ready())
                tasks.create_task(self._keep_reloading())
        finally:
            self._alarm.close()

    async def _load_ready(self) -> None:
        """Loads partitions that were gained. A refresh, which may take long, does not delay it."""
        while True:
            ready = await self._queues.reloads.ready.take()
            held = self._context.ownership.partitions
            await self._load([partition for partition in ready if partition in held])

    async def _keep_reloading(self) -> None:
        while True:
            reload = await self._queues.reloads.take()
            if reload.everything:
                self._large_jobs.clear()
                await self._load(self._context.ownership.partitions)
            elif reload.job_ids:
                await self._reload_and_rest(reload.job_ids)

    async def _load(self, partitions: Collection[int]) -> None:
        """Reads the horizon of some partitions."""
        if not partitions:
            return
        started_us, began_us = self._context.ownership.now_us(), self._context.clock.now_us()
        being_claimed = [claim.keys for claim in self._context.registry.rulings.claims]
        with self._due_times.loading(), self._retries.loading(being_claimed) as still_waiting:
            horizon = await self._context.store.load(partitions, self._horizon_us)
            await self._put(horizon)
            await self._put_retries(horizon, still_waiting)
        self._queues.upcoming.changed.set()
        self._note_large_jobs(horizon, began_us)
        now_us = self._context.ownership.now_us()
        self._context.vitals.store.loads.observe(now_us - started_us, len(horizon))
        self._context.vitals.store.refreshed_at_us = now_us

    def _refresh(self) -> None:
        """Refreshes, but waits for settle to catch up first, for at most two periods."""
        now_ns = self._context.machine.now_ns()
        if self._queues.results.is_backed_up and now_ns < self._refresh_by_ns:
            self._alarm.set(now_ns + self._config.backed_up_ns)
            return
        self._queues.reloads.put_everything()
        self._schedule_refresh()

    def _schedule_refresh(self) -> None:
        now_ns, period_ns = self._context.machine.now_ns(), self._context.config.refresh_us * 1_000
        self._refresh_by_ns = now_ns + 2 * period_ns
        self._alarm.set(now_ns + period_ns)

    def _horizon_us(self) -> int:
        return self._context.clock.now_us() + self._context.config.horizon_us

    async def _reload_and_rest(self, job_ids: Collection[UUID]) -> None:
        """Rests after a long reload for as long as it took: hints may come faster than reads."""
        began_us = self._context.ownership.now_us()
        await self._reload(job_ids)
        took_us = self._context.ownership.now_us() - began_us
        if took_us > self._config.long_us:
            await self._context.clock.sleep(took_us * 1_000)

    async def _reload(self, job_ids: Collection[UUID]) -> None:
        ours = [job_id for job_id in job_ids if self._context.ownership.may_arm(job_id)]
        if not ours:
            return
        began_us = self._context.clock.now_us()
        since_us = {
            job_id: self._large_jobs[job_id] for job_id in ours if job_id in self._large_jobs
        }
        being_claimed = [claim.keys for claim in self._context.registry.rulings.claims]
        with (
            self._due_times.loading() as moved,
            self._retries.loading(being_claimed) as still_waiting,
        ):
            horizon = await self._context.store.reload(ours, self._horizon_us, since_us)
            dues_us = {horizon.job_id(place): due_us for place, due_us in enumerate(horizon.due_us)}
            for job_id in [job_id for job_id in ours if job_id not in moved]:
                due_us = dues_us.get(job_id)
                # Moved, not put: this is newer than what a load in progress returns.
                self._due_times.move(job_id, None if due_us == NEVER_US else due_us)
                if due_us == NEVER_US:
                    self._queues.ending.put(job_id)
            await self._put_retries(horizon, still_waiting)
        self._context.vitals.hints.reloads += len(ours)
        self._note_large_jobs(horizon, began_us)
        self._queues.upcoming.changed.set()

    def _note_large_jobs(self, horizon: Horizon, began_us: int) -> None:
        """Remembers the jobs with too many waiting runs for a hint to read all of them again.

        A hint is about a retry whose time is after the change. Retries from long before the latest
        load are known from that load, and the next refresh reads all of them.
        """
        if len(horizon.retries) >= self._config.large_job:
            waiting = Counter(retry.key.job_id for retry in horizon.retries)
            known_us = began_us - self._config.commit_us
            self._large_jobs.update(
                {
                    job_id: known_us
                    for job_id, count in waiting.items()
                    if count >= self._config.large_job
                }
            )

    async def _put(self, horizon: Horizon) -> None:
        for start in range(0, len(horizon), self._config.slice):
            stop = min(start + self._config.slice, len(horizon))
            if NEVER_US in horizon.due_us[start:stop]:
                self._put_one_by_one(horizon, start, stop)
            else:
                self._due_times.put_many(horizon, start, stop)
            await self._context.clock.sleep(0)

    async def _put_retries(
        self, horizon: Horizon, still_waiting: Callable[[Iterable[Retry]], list[Retry]]
    ) -> None:
        has_attempt = self._context.registry.has_attempt
        for start in range(0, len(horizon.retries), self._config.slice):
            if start:
                await self._context.clock.sleep(0)
            for retry in still_waiting(horizon.retries[start : start + self._config.slice]):
                if not has_attempt(retry.key):
                    self._retries.put(retry)

    def _put_one_by_one(self, horizon: Horizon, start: int, stop: int) -> None:
        for place in range(start, stop):
            job_id = horizon.job_id(place)
            if horizon.due_us[place] == NEVER_US:
                self._queues.ending.put(job_id)
            else:
                self._due_times.put(job_id, horizon.due_us[place])
