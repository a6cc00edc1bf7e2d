"""Stage *load*: the due times of the coming minutes, from the database into the wheel.

Invariant: whatever is due within the horizon in a partition of ours is in the wheel, or armed, at
the latest two refreshes after it was written, and at once when a hint tells of it. Loading again
what is known changes nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from msgspec import Struct

from wheelsched.core.duration import MILLISECOND, SECOND
from wheelsched.ports import NEVER_US, Horizon, Retry
from wheelsched.shard.context import Context
from wheelsched.shard.due_times import DueTimes
from wheelsched.shard.retries import Retries

STRETCH = 2_000  # timers put into the wheel in one turn of the loop
CROWDED_NS = 1_000_000_000  # how long a refresh waits for a crowd before it looks again
LONG_US = 20 * MILLISECOND
CROWD = 1_000  # waiting runs of one job
COMMIT_US = 30 * SECOND  # from the instant in a change to when everybody sees it, at most
MOST_ASKED = 10_000  # jobs read one by one; beyond that everything is read again


class Outlets(Struct, frozen=True):
    """Whom to tell."""

    loaded: Callable[[], None]
    ending: Callable[[UUID], None]  # a job whose schedule has no further due time
    is_crowded: Callable[[], bool]  # outcomes of a crowd wait to be written


class Load:
    """Fills the wheel."""

    def __init__(
        self, context: Context, due_times: DueTimes, retries: Retries, outlets: Outlets
    ) -> None:
        self._context = context
        self._due_times = due_times
        self._retries = retries
        self._outlets = outlets
        self._asked: set[UUID] = set()
        self._is_everything_asked = False
        self._crowds: dict[UUID, int] = {}  # jobs with very many retries: from when on to read them
        self._woken = asyncio.Event()
        self._alarm = context.machine.alarm(self._refresh)
        self._refresh_by_ns = 0

    def ask(self, *job_ids: UUID) -> None:
        """Reads these jobs' timers again, soon."""
        self._asked.update(job_ids)
        self._woken.set()

    def ask_everything(self) -> None:
        """Reads every timer again, soon: a hint may have been missed."""
        self._is_everything_asked = True
        self._woken.set()

    async def run(self) -> None:
        """Loads until it is cancelled."""
        try:
            self._plan_refresh()
            while True:
                await self._woken.wait()
                self._woken.clear()
                if self._is_everything_asked or len(self._asked) > MOST_ASKED:
                    self._is_everything_asked = False
                    self._asked.clear()
                    self._crowds.clear()
                    await self.load(self._context.tenure.partitions)
                elif self._asked:
                    asked, self._asked = self._asked, set()
                    await self._reload_and_rest(asked)
        finally:
            self._alarm.close()

    async def load(self, partitions: Collection[int]) -> None:
        """Reads the horizon of some partitions."""
        if not partitions:
            return
        started_us, began_us = self._context.tenure.now_us(), self._context.clock.now_us()
        being_claimed = self._context.unfinished.being_claimed()
        with self._due_times.loading(), self._retries.loading(being_claimed) as still_waiting:
            horizon = await self._context.patience.insist(
                "horizon.load",
                lambda: self._context.stores.timers.load(partitions, self._horizon_us()),
            )
            await self._put(horizon)
            await self._put_retries(horizon, still_waiting)
        self._outlets.loaded()
        self._note_crowds(horizon, began_us)
        now_us = self._context.tenure.now_us()
        self._context.vitals.store.loads.observe(now_us - started_us, len(horizon))
        self._context.vitals.store.refreshed_at_us = now_us

    def _refresh(self) -> None:
        """After a crowd when there is one, which would wait for it; but within two periods."""
        now_ns = self._context.machine.now_ns()
        if self._outlets.is_crowded() and now_ns < self._refresh_by_ns:
            self._alarm.set(now_ns + CROWDED_NS)
            return
        self.ask_everything()
        self._plan_refresh()

    def _plan_refresh(self) -> None:
        now_ns, period_ns = self._context.machine.now_ns(), self._context.config.refresh_us * 1_000
        self._refresh_by_ns = now_ns + 2 * period_ns
        self._alarm.set(now_ns + period_ns)

    def _horizon_us(self) -> int:
        return self._context.clock.now_us() + self._context.config.horizon_us

    async def _reload_and_rest(self, job_ids: Collection[UUID]) -> None:
        """After a long one rests as long: hints may come faster than what they tell of is read."""
        began_us = self._context.tenure.now_us()
        await self._reload(job_ids)
        took_us = self._context.tenure.now_us() - began_us
        if took_us > LONG_US:
            await self._context.clock.sleep(took_us * 1_000)

    async def _reload(self, job_ids: Collection[UUID]) -> None:
        ours = [job_id for job_id in job_ids if self._context.tenure.may_arm(job_id)]
        if not ours:
            return
        began_us = self._context.clock.now_us()
        since_us = {job_id: self._crowds[job_id] for job_id in ours if job_id in self._crowds}
        being_claimed = self._context.unfinished.being_claimed()
        with (
            self._due_times.loading() as moved,
            self._retries.loading(being_claimed) as still_waiting,
        ):
            horizon = await self._context.patience.insist(
                "horizon.load",
                lambda: self._context.stores.timers.reload(ours, self._horizon_us(), since_us),
            )
            dues_us = {horizon.job_id(place): due_us for place, due_us in enumerate(horizon.due_us)}
            for job_id in [job_id for job_id in ours if job_id not in moved]:
                due_us = dues_us.get(job_id)
                # Moved, not put: it is newer than what a load brings that is under way.
                self._due_times.move(job_id, None if due_us == NEVER_US else due_us)
                if due_us == NEVER_US:
                    self._outlets.ending(job_id)
            await self._put_retries(horizon, still_waiting)
        self._context.vitals.hints.reloads += len(ours)
        self._note_crowds(horizon, began_us)
        self._outlets.loaded()

    def _note_crowds(self, horizon: Horizon, began_us: int) -> None:
        """Remembers of which jobs so many runs wait that those are not read again at every hint.

        Whatever a hint tells of is to be tried after the change that it tells of: what was to be
        tried long before the latest load is known by that, and the next refresh reads all of it.
        """
        if len(horizon.retries) >= CROWD:
            waiting = Counter(retry.key.job_id for retry in horizon.retries)
            known_us = began_us - COMMIT_US
            self._crowds.update(
                {job_id: known_us for job_id, count in waiting.items() if count >= CROWD}
            )

    async def _put(self, horizon: Horizon) -> None:
        for start in range(0, len(horizon), STRETCH):
            stop = min(start + STRETCH, len(horizon))
            if NEVER_US in horizon.due_us[start:stop]:
                self._put_one_by_one(horizon, start, stop)
            else:
                self._due_times.put_many(horizon, start, stop)
            await self._context.clock.sleep(0)

    async def _put_retries(
        self, horizon: Horizon, still_waiting: Callable[[Iterable[Retry]], list[Retry]]
    ) -> None:
        has_attempt = self._context.unfinished.has_attempt
        for start in range(0, len(horizon.retries), STRETCH):
            if start:
                await self._context.clock.sleep(0)
            for retry in still_waiting(horizon.retries[start : start + STRETCH]):
                if not has_attempt(retry.key):
                    self._retries.put(retry)

    def _put_one_by_one(self, horizon: Horizon, start: int, stop: int) -> None:
        for place in range(start, stop):
            job_id = horizon.job_id(place)
            if horizon.due_us[place] == NEVER_US:
                self._outlets.ending(job_id)
            else:
                self._due_times.put(job_id, horizon.due_us[place])
