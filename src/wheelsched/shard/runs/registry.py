"""The unfinished runs of a shard: armed, waiting for earlier runs of their job, live, or orphaned.

Invariant: the owner of a partition knows every unfinished run of its jobs. Adoption turns an orphan
into one of the other three. A run is *live* from its first dispatch to its final outcome, including
the waits between attempts. `overlap` decides by the live runs of a job and by the runs that wait
ahead. `rulings` keeps the runs whose end was decided without an attempt until that is written.

*Fire* reads three queues of the registry: `armed`, the runs to add to the timetable; `freed`, the
jobs whose waiting runs may go now; and `recalled`, the runs that workers which pull must stop.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import RunKey
from wheelsched.flow import Inbox, Pending
from wheelsched.shard.recovery.orphans import Orphans
from wheelsched.shard.runs.armed_run import ArmedRun, Index
from wheelsched.shard.runs.held_runs import HeldRuns
from wheelsched.shard.runs.overlap_queue import OverlapQueue
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.runs.rulings import Rulings

_NONE: Mapping[RunKey, "LiveRun"] = {}

# Of an inbox. Adopted runs do not count against `max_armed`, and a claim may bring many missed
# runs: whatever the limits of a shard, a few batches of them fit in.
LEAST_BOUND: Final = 1_000_000

# Members of an enum, looked up once: half a million runs ask in one second.
_SHARED, _ALONE, _ALONE_LIVE = Index
_ARMED, _ADMITTED = Phase.ARMED, Phase.ADMITTED


class LiveRun(Struct, eq=False, kw_only=True, gc=False):
    """A run that was dispatched and has no final outcome."""

    key: RunKey
    token: int
    armed: ArmedRun | None = None  # while this shard has an attempt in flight


class RunRegistry:
    """The unfinished runs, by job.

    Most jobs have one run. It is *alone*, armed or live, and needs no container. The runs of any
    other job are in separate maps of armed, waiting and live runs. A job may have a hundred
    thousand: each run is found by its key, and no operation on one run visits the others.
    """

    def __init__(self, most: int) -> None:
        # It may still contain withdrawn runs.
        self.armed: Inbox[ArmedRun] = Inbox(max(2 * most, LEAST_BOUND))
        self.freed: Pending[UUID] = Pending()
        self.recalled: Inbox[ArmedRun] = Inbox(max(2 * most, LEAST_BOUND))
        self.orphans = Orphans()
        self.rulings = Rulings()
        self._held = HeldRuns()
        self._alone: dict[UUID, ArmedRun] = {}  # a job in here is in none of the next three
        self._armed: dict[UUID, dict[RunKey, ArmedRun]] = {}
        self._waiting: dict[UUID, OverlapQueue] = {}
        self._live: dict[UUID, dict[RunKey, LiveRun]] = {}  # oldest dispatch first
        self._armed_count = 0
        self._waiting_count = 0
        self._live_count = 0
        self.withdrawals = 0  # of all runs so far

    @property
    def armed_count(self) -> int:
        """The number of runs that are armed and not dispatched."""
        return self._armed_count

    @property
    def waiting_count(self) -> int:
        """The number of armed runs that are due and wait for earlier runs of their job."""
        return self._waiting_count

    @property
    def live_count(self) -> int:
        return self._live_count

    def arm(self, run: ArmedRun) -> None:
        """Adds an armed run, which waits for its time.

        It replaces an earlier armed attempt of the same run. If the run is live although this is
        its first attempt, either it ended unnoticed and a person retried it, or it was admitted and
        not sent. Both are decided again.
        """
        if run.is_first and self.is_live(run.key):
            self.end(run.key)
        before = self.find_armed(run.key)
        if before is not None and before is not run:
            self.forget([before])
        job_id = run.key.job_id
        if self._has_run(job_id):
            self._spread(job_id)
            self._armed.setdefault(job_id, {})[run.key] = run
        else:
            self._alone[job_id] = run
            run.index = _ALONE
        self._armed_count += 1
        run.enter(_ARMED)
        self.armed.put(run)

    def arm_again(self, run: ArmedRun) -> bool:
        """Arms a run that may have been live without having been sent. True if it is held.

        A run that was live is decided again, before the runs of its job that wait for it. Until it
        is revalidated, it is held.
        """
        was_live = run.is_first and self.is_live(run.key)
        self.arm(run)
        if not was_live or run.index is _ALONE:
            return False
        self.hold(run)
        return True

    def replace(self, old: ArmedRun, new: ArmedRun) -> bool:
        """Replaces an unsent attempt by a rebuilt one. Runs that wait for it wait on. True if the
        new one is held."""
        new.is_followed = old.is_followed
        self.forget([old])
        if not new.is_first:  # it stays live between its attempts
            self.pause(old.key)
        return self.arm_again(new)

    def withdraw(self, run: ArmedRun) -> None:
        """Removes a run that was paused or cancelled, or that another shard owns by now."""
        self.forget([run])
        self.end(run.key, run.token)
        self._free(run.key.job_id)

    def disarm(self, run: ArmedRun) -> bool:
        """Removes a run that is dispatched, or never will be. False if it was not armed."""
        job_id = run.key.job_id
        armed = self._armed.get(job_id)
        if run.index is _ALONE:
            self._leave_alone(run)
        elif armed is not None and armed.get(run.key) is run:
            del armed[run.key]
            if not armed:
                del self._armed[job_id]
        else:
            return False
        self._armed_count -= 1
        return True

    def armed_of(self, job_id: UUID) -> tuple[ArmedRun, ...]:
        """The armed runs of a job."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return (alone,) if alone.index is _ALONE else ()
        return tuple(self._armed.get(job_id, {}).values())

    def count_armed(self, job_id: UUID) -> int:
        """The number of runs of a job that are armed and not dispatched."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return 1 if alone.index is _ALONE else 0
        return len(self._armed.get(job_id, ()))

    def any_armed(self, job_id: UUID) -> ArmedRun | None:
        """Any armed run of a job, or None."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return alone if alone.index is _ALONE else None
        return next(iter(self._armed.get(job_id, {}).values()), None)

    def job_ids(self) -> Iterable[UUID]:
        """The jobs with armed or live runs; some of them twice."""
        return chain(self._alone, self._armed, self._live)

    def is_armed(self, key: RunKey) -> bool:
        """Whether an attempt of the run is armed."""
        return self.find_armed(key) is not None

    def attempted(self) -> Iterator[RunKey]:
        """The runs with an attempt that is armed or in flight on this shard."""
        for alone in self._alone.values():
            yield alone.key
        for armed in self._armed.values():
            yield from armed
        for of_job in self._live.values():
            for key, live in of_job.items():
                if live.armed is not None:
                    yield key

    def knows(self, key: RunKey) -> bool:
        """Whether the run is armed or live on this shard, or has an unwritten ruling."""
        return self.is_live(key) or self.is_armed(key) or key in self.rulings

    def has_attempt(self, key: RunKey) -> bool:
        """Whether an attempt of the run is armed or in flight on this shard."""
        live = self.find(key)
        return self.is_armed(key) or (live is not None and live.armed is not None)

    def has_later(self, key: RunKey, token: int) -> bool:
        """Whether this shard has armed, sent, or may just be claiming an attempt of the run with a
        later token."""
        if any(key in claim.keys for claim in self.rulings.claims):
            return True
        live, armed = self.find(key), self.find_armed(key)
        return any(run is not None and run.token > token for run in (live, armed))

    def has_any(self, job_id: UUID) -> bool:
        """Whether the job has an unfinished run."""
        return self._has_run(job_id) or job_id in self.orphans.jobs

    def begin_alone(self, run: ArmedRun) -> bool:
        """Makes a run live if it is the only unfinished run of its job, as nearly all are. One step
        suffices: half a million runs may come due at once."""
        if run.index is not _ALONE:
            return False
        run.index = _ALONE_LIVE
        run.phase = _ADMITTED
        self._armed_count -= 1
        self._live_count += 1
        return True

    def end_alone(self, key: RunKey, token: int) -> bool:
        """Ends a live run that is still the only one of its job. False if it is not."""
        run = self._alone.get(key.job_id)
        if run is None or run.index is not _ALONE_LIVE or (run.token, run.key) != (token, key):
            return False
        self._leave_alone(run)
        self._live_count -= 1
        return True

    def begin(self, run: ArmedRun) -> None:
        """Makes a run live just before it is dispatched."""
        run.enter(Phase.ADMITTED)
        self.disarm(run)
        self._add(LiveRun(key=run.key, token=run.token, armed=run))

    def resume(self, run: ArmedRun) -> None:
        """Adds a live run that its previous owner may have sent at its time."""
        run.phase = Phase.SENT
        run.started_us = run.fire_at_us
        self._add(LiveRun(key=run.key, token=run.token, armed=run))

    def revive(self, key: RunKey, token: int) -> None:
        """Adds a live run without an attempt on this shard."""
        self._add(LiveRun(key=key, token=token))

    def pause(self, key: RunKey) -> None:
        """Ends the attempt of a run that stays live."""
        if (live := self.find(key)) is not None:
            live.armed = None
        self._free(key.job_id)

    def unsettle(self, run: ArmedRun) -> None:
        """Records that the outcome of a run will not be written: nothing waits for that."""
        if run.phase is Phase.SETTLING:
            run.enter(Phase.SENT)
        self._free(run.key.job_id)

    def count_settling(self, job_id: UUID) -> int:
        """The number of live runs of a job whose outcome waits to be written; visits them all."""
        return sum(
            live.armed is not None and live.armed.phase is Phase.SETTLING
            for live in self._live_by_key(job_id).values()
        )

    def end(self, key: RunKey, token: int | None = None) -> None:
        """Removes a live run that has a final outcome, or that another shard owns.

        With a token, only that attempt ended: a later attempt goes on.
        """
        run = self.find(key)
        if run is not None and (token is None or run.token <= token):
            of_job = self._live[key.job_id]
            del of_job[key]
            if not of_job:
                del self._live[key.job_id]
            self._live_count -= 1
        self._free(key.job_id)

    def is_live(self, key: RunKey) -> bool:
        return self.find(key) is not None

    def live_of(self, job_id: UUID) -> tuple[LiveRun, ...]:
        """The live runs of a job, oldest dispatch first."""
        return tuple(self._live_by_key(job_id).values())

    def live_keys(self, job_id: UUID) -> Collection[RunKey]:
        """The keys of the live runs of a job, oldest dispatch first; a view, not a copy."""
        return self._live_by_key(job_id).keys()

    def wait(self, run: ArmedRun) -> None:
        """Queues a run that is due behind the unfinished runs of its job."""
        job_id = run.key.job_id
        self._spread(job_id)
        queue = self._waiting.get(job_id)
        if queue is None:
            queue = self._waiting[job_id] = OverlapQueue()
        queue.add(run)
        self._waiting_count += 1
        run.enter(Phase.WAITING)

    def hold(self, run: ArmedRun) -> None:
        """Holds a run that is due until it is revalidated. Later runs of its job wait for it."""
        run.enter(Phase.HELD)
        if run.is_first:
            self._held.add(run)

    def release(self, run: ArmedRun) -> None:
        """Ends the hold of a run that was revalidated."""
        self._held.discard(run)
        self._free(run.key.job_id)

    def must_wait(self, run: ArmedRun) -> bool:
        """Whether an earlier run of its job is held."""
        return self._held.is_any_ahead_of(run)

    def waiting_ahead_of(self, run: ArmedRun) -> int:
        """The number of runs of its job that wait ahead of this one."""
        queue = self._waiting.get(run.key.job_id)
        return 0 if queue is None else queue.ahead_of(run)

    def is_idle(self, job_id: UUID) -> bool:
        """Whether no run of the job is live or waiting, so that overlap has nothing to decide."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return alone.index is _ALONE
        return job_id not in self._live and job_id not in self._waiting

    def has_waiting(self, runs: Iterable[ArmedRun]) -> bool:
        """Whether any of their jobs has a waiting run. Hardly any has, and half a million ask."""
        waiting = self._waiting
        return bool(waiting) and any(run.key.job_id in waiting for run in runs)

    def first_waiting(self, job_id: UUID) -> ArmedRun | None:
        """The waiting run of a job that goes next."""
        queue = self._waiting.get(job_id)
        return None if queue is None else queue.first

    def take_waiting(self, run: ArmedRun) -> None:
        """Removes a run from the waiting ones, if it is there."""
        queue = self._waiting.get(run.key.job_id)
        if queue is not None and queue.discard(run):
            self._waiting_count -= 1
            if not queue:
                del self._waiting[run.key.job_id]

    def forget(self, runs: Iterable[ArmedRun]) -> None:
        """Withdraws armed runs."""
        for run in runs:
            self.ignore(run)
            self.disarm(run)
            self.take_waiting(run)
            self._held.discard(run)

    def ignore(self, run: ArmedRun) -> None:
        """Marks a run that will not be sent, or whose response is ignored."""
        room = run.route.room
        if room is not None and run.phase is Phase.SENT:
            self.recalled.put(run)
        elif room is not None and run.phase is _ADMITTED:
            room.withdrawn += 1
        run.enter(Phase.WITHDRAWN)
        self.withdrawals += 1

    def find(self, key: RunKey) -> LiveRun | None:
        """The run, if it is live."""
        return self._live_by_key(key.job_id).get(key)

    def find_armed(self, key: RunKey) -> ArmedRun | None:
        """The armed attempt of the run, if there is one."""
        alone = self._alone.get(key.job_id)
        if alone is not None:
            return alone if alone.key == key and alone.index is _ALONE else None
        armed = self._armed.get(key.job_id)
        return None if armed is None else armed.get(key)

    def _live_by_key(self, job_id: UUID) -> Mapping[RunKey, LiveRun]:
        alone = self._alone.get(job_id)
        if alone is not None and alone.index is _ALONE_LIVE:
            self._spread(job_id)
        return self._live.get(job_id, _NONE)

    def _has_run(self, job_id: UUID) -> bool:
        return job_id in self._alone or job_id in self._armed or job_id in self._live

    def _leave_alone(self, run: ArmedRun) -> None:
        del self._alone[run.key.job_id]
        run.index = _SHARED

    def _spread(self, job_id: UUID) -> None:
        """Moves a run that is alone into the maps: another run comes, or a caller needs the map."""
        run = self._alone.get(job_id)
        if run is None:
            return
        if run.index is _ALONE_LIVE:
            self._live[job_id] = {run.key: LiveRun(key=run.key, token=run.token, armed=run)}
        else:
            self._armed[job_id] = {run.key: run}
        self._leave_alone(run)

    def _free(self, job_id: UUID) -> None:
        """Lets *fire* decide again about the waiting runs of a job."""
        if job_id in self._waiting:
            self.freed.put(job_id)

    def _add(self, live: LiveRun) -> None:
        """Adds a live run; one that is live already keeps its place in the order."""
        job_id = live.key.job_id
        self._spread(job_id)
        of_job = self._live.setdefault(job_id, {})
        self._live_count += live.key not in of_job
        of_job[live.key] = live
