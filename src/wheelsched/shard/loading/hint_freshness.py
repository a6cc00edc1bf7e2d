"""How fresh the hints about changed jobs are, and what has to be read again.

Invariant: `covers(t)` is true only if the hint of every change that committed a second before `t`
has arrived.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from wheelsched.flow import Pending
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.values.duration import SECOND

# A change that is acknowledged this long before a due time takes effect: promise 8.
NOTICE_US: Final = SECOND

MOST_JOBS: Final = 10_000  # beyond that, all timers are read


class HintFreshness:
    """Until when the listener has received every hint, by the database's clock."""

    def __init__(self) -> None:
        self.confirmed_us = 0

    def confirmed(self, sent_us: int, error_us: int) -> None:
        """Records a round trip that was sent at `sent_us`; the clock may be off by `error_us`."""
        self.confirmed_us = max(self.confirmed_us, sent_us - error_us)

    def lost(self) -> None:
        """Records that the connection was lost, or that the clock was stepped."""
        self.confirmed_us = 0

    def covers(self, due_us: int) -> bool:
        """Whether a run that is due then may be sent without reading it again."""
        return due_us - NOTICE_US <= self.confirmed_us


class Doubts:
    """The jobs that have changed and were not read again since. *Revalidate* reads `to_read`.

    Changes are numbered. When a run is read or claimed, it is vouched for up to the latest change.
    So a change is recorded once per job and never per run: a job may have a hundred thousand runs.
    """

    def __init__(self, changes: "Changes") -> None:
        self._changes = changes
        self.latest = 0  # the number of the latest change of any job
        self.jobs: dict[UUID, int] = {}  # with the number of the latest change of each
        self.to_read: Pending[UUID] = Pending()

    def changed(self, job_id: UUID) -> None:
        """Puts every unfinished run of a job in doubt: none is sent before it is read again.

        A job that changes several times before it is read is read once.
        """
        self.latest += 1
        self.jobs[job_id] = self.latest
        self.to_read.put(job_id)

    def vouch(self, run: ArmedRun) -> None:
        """Vouches for a run that was just claimed, unless its job may have changed meanwhile."""
        if self._changes.may_affect(run.key.job_id):
            self.changed(run.key.job_id)
        elif self.jobs:
            run.vouched = self.latest

    def affects(self, job_id: UUID, vouched: int) -> bool:
        """Whether a run that is vouched for up to a number has to be read again."""
        return vouched < self.jobs.get(job_id, 0)

    def resolve(self, job_id: UUID, number: int) -> None:
        """Removes a job whose runs are all vouched for, unless it has changed since."""
        if self.jobs.get(job_id) == number:
            del self.jobs[job_id]


class Changes:
    """The jobs for which a hint arrived while runs were being claimed.

    A claim may have committed before its answer arrives. The shard does not know its runs yet, so a
    hint finds nothing to put in doubt. It is recorded here until the claim has ended.
    """

    def __init__(self) -> None:
        self._claims: list[set[UUID]] = []
        self._any_job: list[set[UUID]] = []  # the claims during which any job may have changed
        self._has_any = False  # a shortcut: checked for every run, nearly always False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records hints while a claim is in progress."""
        recorded: set[UUID] = set()
        self._claims.append(recorded)
        try:
            yield
        finally:
            self._claims = [other for other in self._claims if other is not recorded]
            self._any_job = [other for other in self._any_job if other is not recorded]
            self._has_any = any(self._claims)

    def record(self, job_id: UUID) -> None:
        for claim in self._claims:
            claim.add(job_id)
            self._has_any = True

    def record_any(self) -> None:
        """Records that any job may have changed: hints may have been missed."""
        self._any_job = list(self._claims)

    def may_affect(self, job_id: UUID) -> bool:
        """Whether a job may have changed since the claim in progress began."""
        if self._any_job:
            return True
        return self._has_any and any(job_id in claim for claim in self._claims)


class Reload(NamedTuple):
    """The timers to read: those of all partitions, or of some jobs."""

    everything: bool
    job_ids: Collection[UUID]


class Reloads:
    """Timers that *load* is to read again; and `ready`, partitions to read for the first time."""

    def __init__(self) -> None:
        self.ready: Pending[int] = Pending()
        self._everything = False
        self._job_ids: set[UUID] = set()
        self._wanted = asyncio.Event()

    def put(self, *job_ids: UUID) -> None:
        """Reloads jobs that have changed, or whose timers are not where the shard expects them."""
        self._job_ids.update(job_ids)
        if len(self._job_ids) > MOST_JOBS:
            self._everything = True
        self._wanted.set()

    def put_everything(self) -> None:
        """Reloads everything: a hint may have been missed, or a refresh is due."""
        self._everything = True
        self._wanted.set()

    async def take(self) -> Reload:
        """Waits until there is something to read, and takes all of it."""
        await self._wanted.wait()
        self._wanted.clear()
        taken = Reload(self._everything, self._job_ids)
        self._everything, self._job_ids = False, set()
        return taken
