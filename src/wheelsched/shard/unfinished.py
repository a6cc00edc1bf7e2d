"""The unfinished runs of a shard's jobs: armed, waiting for their turn, live, or left behind.

Invariant: the owner of a partition knows every unfinished run of its jobs. What others left behind
is one of the other three as soon as it was taken up, and until then apart. A run is *live* from
its first dispatch to its final outcome, the waits between attempts included; `overlap` decides by
the live runs of a job, and by those of its runs that wait in front. A run whose end was decided
without an attempt stays known until that is written: until then the database says it is unfinished.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import RunKey
from wheelsched.core.partition import partition_of
from wheelsched.shard.armed import ArmedRun
from wheelsched.shard.left_behind import LeftBehind
from wheelsched.shard.waiting_line import WaitingLine

_NONE: Mapping[RunKey, "LiveRun"] = {}


class LiveRun(Struct, eq=False, kw_only=True, gc=False):
    """A run that was dispatched and has no final outcome."""

    key: RunKey
    token: int
    armed: ArmedRun | None = None  # while an attempt of ours is under way


class Claiming(NamedTuple):
    """Unfinished runs that are being claimed, and those of them that were given up meanwhile."""

    keys: set[RunKey]
    given_up: set[RunKey]


class Unfinished:
    """What is unfinished, by job. Most jobs have one run: it is *alone*, armed or live, and nothing
    is made for it. Of any other job the armed, waiting and live ones are kept apart. A job may have
    a hundred thousand: each is found by its key, and nothing that is done for one run looks at the
    others."""

    def __init__(self) -> None:
        self.left = LeftBehind()
        self._alone: dict[UUID, ArmedRun] = {}  # of the jobs in it nothing is in the next three
        self._armed: dict[UUID, dict[RunKey, ArmedRun]] = {}
        self._waiting: dict[UUID, WaitingLine] = {}
        self._live: dict[UUID, dict[RunKey, LiveRun]] = {}  # oldest dispatch first
        self._ruled = Counter[RunKey]()  # and how often: an end may be decided under two tokens
        self._ruled_in = Counter[int]()  # how many of those runs, by partition
        self._put_off: set[RunKey] = set()  # those of them with a retry that is to be looked for
        self._claims: list[Claiming] = []
        self._armed_count = 0
        self._waiting_count = 0
        self._live_count = 0

    @property
    def armed_count(self) -> int:
        """How many runs are armed and not dispatched."""
        return self._armed_count

    @property
    def waiting_count(self) -> int:
        """How many of them wait for their turn: their time has come."""
        return self._waiting_count

    @property
    def live_count(self) -> int:
        return self._live_count

    def arm(self, run: ArmedRun) -> None:
        """Notes a run that is armed and waits for its time.

        One that was armed before was taken back meanwhile, unheard, and is not sent any more.
        """
        before = self.find_armed(run.key)
        if before is not None and before is not run:
            self.forget([before])
        job_id = run.key.job_id
        if self._has_run(job_id):
            self._spread(job_id)
            self._armed.setdefault(job_id, {})[run.key] = run
        else:
            self._alone[job_id] = run
            run.is_alone = True
        self._armed_count += 1

    def disarm(self, run: ArmedRun) -> bool:
        """Forgets an armed run: it is dispatched, or will not be. False when it was not armed."""
        job_id = run.key.job_id
        armed = self._armed.get(job_id)
        if run.is_alone and not run.is_live:
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
            return () if alone.is_live else (alone,)
        return tuple(self._armed.get(job_id, {}).values())

    def count_armed(self, job_id: UUID) -> int:
        """How many runs of a job are armed and not dispatched."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return 0 if alone.is_live else 1
        return len(self._armed.get(job_id, ()))

    def any_armed(self, job_id: UUID) -> ArmedRun | None:
        """One of the armed runs of a job, if there are any."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return None if alone.is_live else alone
        return next(iter(self._armed.get(job_id, {}).values()), None)

    def job_ids(self) -> Iterable[UUID]:
        """The jobs with anything armed or live: some of them twice."""
        return chain(self._alone, self._armed, self._live)

    def is_armed(self, key: RunKey) -> bool:
        """Whether an attempt of the run waits for its time."""
        return self.find_armed(key) is not None

    def attempted(self) -> Iterator[RunKey]:
        """The runs with an attempt that is armed or under way here."""
        for alone in self._alone.values():
            yield alone.key
        for armed in self._armed.values():
            yield from armed
        for of_job in self._live.values():
            for key, live in of_job.items():
                if live.armed is not None:
                    yield key

    def knows(self, key: RunKey) -> bool:
        """Whether the run is armed or live here, or has an end that is still to be written."""
        return self.is_live(key) or self.is_armed(key) or self.is_ruled(key)

    def rule(self, key: RunKey) -> None:
        """Notes that an end was decided for a run, which the database does not know yet."""
        if key not in self._ruled:
            self._ruled_in[partition_of(key.job_id)] += 1
        self._ruled[key] += 1
        for claim in self._claims:
            if key in claim.keys:
                claim.given_up.add(key)

    @contextmanager
    def claiming(self, keys: Iterable[RunKey]) -> Iterator[set[RunKey]]:
        """While runs are claimed under new tokens; gives those that are given up meanwhile.

        A claim that is not answered may have committed: whatever is written of a run under the
        token before is stale then. One that was given up is not to be sent, and one that seems to
        have a later attempt elsewhere has it here.
        """
        claim = Claiming(set(keys), set())
        self._claims.append(claim)
        try:
            yield claim.given_up
        finally:
            self._claims = [other for other in self._claims if other is not claim]

    def being_claimed(self) -> Sequence[Collection[RunKey]]:
        """The runs of each claim that is under way."""
        return [claim.keys for claim in self._claims]

    @property
    def ruled(self) -> Collection[RunKey]:
        """The runs whose end was decided, and is still to be written."""
        return self._ruled.keys()

    def is_ruled(self, key: RunKey) -> bool:
        """Whether an end was decided for the run, and is still to be written."""
        return key in self._ruled

    def put_off(self, key: RunKey) -> bool:
        """Whether a retry is of a run that is ruled: it may be void then, or asked for since."""
        if key in self._ruled:
            self._put_off.add(key)
        return key in self._ruled

    def ruling_written(self, key: RunKey) -> bool:
        """The database knows of the end that was decided for a run. True when a retry of it was
        put off meanwhile, and none is ruled any more."""
        self._ruled[key] -= 1
        if self._ruled[key]:
            return False
        del self._ruled[key]
        self._ruled_in[partition_of(key.job_id)] -= 1
        has_retry = key in self._put_off
        self._put_off.discard(key)
        return has_retry

    def has_ruled(self, partitions: Collection[int]) -> bool:
        """Whether the database is still to learn of an end in one of the partitions."""
        return any(self._ruled_in[partition] for partition in partitions)

    def has_attempt(self, key: RunKey) -> bool:
        """Whether an attempt of the run is armed or under way here."""
        live = self.find(key)
        return self.is_armed(key) or (live is not None and live.armed is not None)

    def has_later(self, key: RunKey, token: int) -> bool:
        """Whether an attempt of the run with a later token is armed, was begun or may just be
        claimed, here."""
        if any(key in claim.keys for claim in self._claims):
            return True
        live, armed = self.find(key), self.find_armed(key)
        return any(run is not None and run.token > token for run in (live, armed))

    def has_any(self, job_id: UUID) -> bool:
        """Whether the job has anything unfinished."""
        return self._has_run(job_id) or self.left.has_job(job_id)

    def begin_alone(self, run: ArmedRun) -> bool:
        """Makes a run live if nothing else of its job is unfinished, as of nearly all: in one step,
        because half a million may come due at once."""
        if not run.is_alone or run.is_live:
            return False
        run.is_live = True
        self._armed_count -= 1
        self._live_count += 1
        return True

    def end_alone(self, key: RunKey, token: int) -> bool:
        """Ends a live run if it was begun so, and is alone still."""
        run = self._alone.get(key.job_id)
        if run is None or not run.is_live or run.token != token or run.key != key:
            return False
        self._leave_alone(run)
        self._live_count -= 1
        return True

    def begin(self, run: ArmedRun) -> None:
        """Makes a run live: it is about to be dispatched."""
        self.disarm(run)
        self._add(LiveRun(key=run.key, token=run.token, armed=run))

    def revive(self, key: RunKey, token: int) -> None:
        """Notes a run that another shard, or an earlier attempt, has left live."""
        self._add(LiveRun(key=key, token=token))

    def pause(self, key: RunKey) -> None:
        """Ends the attempt of a live run, which stays live."""
        if (live := self.find(key)) is not None:
            live.armed = None

    def end(self, key: RunKey, token: int | None = None) -> None:
        """Forgets a live run: it has a final outcome, or is somebody else's.

        With a token, that attempt of it has ended: a later one, if there is any, goes on.
        """
        run = self.find(key)
        if run is None or (token is not None and run.token > token):
            return
        of_job = self._live[key.job_id]
        del of_job[key]
        if not of_job:
            del self._live[key.job_id]
        self._live_count -= 1

    def is_live(self, key: RunKey) -> bool:
        return self.find(key) is not None

    def live_of(self, job_id: UUID) -> tuple[LiveRun, ...]:
        """The live runs of a job, oldest dispatch first."""
        return tuple(self._live_by_key(job_id).values())

    def live_keys(self, job_id: UUID) -> Collection[RunKey]:
        """The keys of the live runs of a job, oldest dispatch first: as they are, not a copy."""
        return self._live_by_key(job_id).keys()

    def wait(self, run: ArmedRun) -> None:
        """Lines up an armed run whose time has come behind the unfinished ones of its job."""
        job_id = run.key.job_id
        self._spread(job_id)
        line = self._waiting.get(job_id)
        if line is None:
            line = self._waiting[job_id] = WaitingLine()
        line.add(run)
        self._waiting_count += 1

    def waiting_ahead_of(self, run: ArmedRun) -> int:
        """How many runs of its job wait in front of this one."""
        line = self._waiting.get(run.key.job_id)
        return 0 if line is None else line.ahead_of(run)

    def is_idle(self, job_id: UUID) -> bool:
        """Whether nothing of the job is live or waits for its turn: nothing to decide."""
        alone = self._alone.get(job_id)
        if alone is not None:
            return not alone.is_live
        return job_id not in self._live and job_id not in self._waiting

    def has_waiting(self, runs: Iterable[ArmedRun]) -> bool:
        """Whether a run of one of their jobs, whose time has come, waits for its turn: hardly ever
        any does, and half a million ask."""
        waiting = self._waiting
        return bool(waiting) and any(run.key.job_id in waiting for run in runs)

    def first_waiting(self, job_id: UUID) -> ArmedRun | None:
        """The run of a job whose turn it is next."""
        line = self._waiting.get(job_id)
        return None if line is None else line.first

    def waiting_ahead_of_time(self, now_us: int) -> list[ArmedRun]:
        """What waits for its turn though its time is to come: the clock was set back."""
        waiting = chain.from_iterable(self._waiting.values())
        return [run for run in waiting if run.fire_at_us > now_us]

    def take_waiting(self, run: ArmedRun) -> None:
        """Lets a run wait no more, if it does."""
        line = self._waiting.get(run.key.job_id)
        if line is not None and line.discard(run):
            self._waiting_count -= 1
            if not line:
                del self._waiting[run.key.job_id]

    def forget(self, runs: Iterable[ArmedRun]) -> None:
        """Forgets armed runs that are somebody else's now."""
        for run in runs:
            run.is_withdrawn = True
            self.disarm(run)
            self.take_waiting(run)

    def find(self, key: RunKey) -> LiveRun | None:
        """The run, if it is live."""
        return self._live_by_key(key.job_id).get(key)

    def find_armed(self, key: RunKey) -> ArmedRun | None:
        """The attempt of the run that waits for its time, if there is one."""
        alone = self._alone.get(key.job_id)
        if alone is not None:
            return alone if alone.key == key and not alone.is_live else None
        armed = self._armed.get(key.job_id)
        return None if armed is None else armed.get(key)

    def _live_by_key(self, job_id: UUID) -> Mapping[RunKey, LiveRun]:
        alone = self._alone.get(job_id)
        if alone is not None and alone.is_live:
            self._spread(job_id)
        return self._live.get(job_id, _NONE)

    def _has_run(self, job_id: UUID) -> bool:
        return job_id in self._alone or job_id in self._armed or job_id in self._live

    def _leave_alone(self, run: ArmedRun) -> None:
        del self._alone[run.key.job_id]
        run.is_alone = run.is_live = False

    def _spread(self, job_id: UUID) -> None:
        """Lets the run of a job be alone no more: another comes, or somebody looks closely."""
        run = self._alone.get(job_id)
        if run is None:
            return
        if run.is_live:
            self._live[job_id] = {run.key: LiveRun(key=run.key, token=run.token, armed=run)}
        else:
            self._armed[job_id] = {run.key: run}
        self._leave_alone(run)

    def _add(self, live: LiveRun) -> None:
        """A run that goes on keeps its place among those of its job."""
        job_id = live.key.job_id
        self._spread(job_id)
        of_job = self._live.setdefault(job_id, {})
        self._live_count += live.key not in of_job
        of_job[live.key] = live
