"""Armed runs: attempts that are claimed in the database and have no outcome yet.

Invariant: one `ArmedRun` per attempt. It holds only what firing and settling need of its job, since
half a million of them wait for one hot second. None is part of a reference cycle, so the garbage
collector does not track them (`gc=False`): it would visit all of them at the worst moment.
"""

from collections.abc import Hashable
from enum import IntEnum
from functools import lru_cache
from typing import Final, Self

from msgspec import Struct

from wheelsched.core.model import Job, Lane, RunKey, Trigger
from wheelsched.core.policies.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.errors import IllegalMove
from wheelsched.ports import Prepared, Route
from wheelsched.shard.runs.phase import NEXT, Phase
from wheelsched.values.duration import SECOND

# Versions of runs that have no request, or an old one: it is built before they are sent.
OUTDATED: Final = 0
PARKED: Final = -1

SOON_US = 5 * SECOND  # a next run of the job within this time may wait for the end of this one


class Rules(Struct, frozen=True):
    """The policies of a job. Many jobs have the same."""

    misfire: MisfirePolicy
    overlap: OverlapPolicy
    retry: RetryPolicy
    timeout_us: int


@lru_cache(maxsize=4_096)
def _shared(rules: Rules) -> Rules:
    return rules


def rules_of(job: Job) -> Rules:
    """The rules of a job; equal rules are one object."""
    return _shared(Rules(job.misfire, job.overlap, job.retry, job.timeout_us))


class Index(IntEnum):
    """Where the registry keeps a run."""

    SHARED = 0  # in the maps, with the other runs of its job
    ALONE = 1  # the only run of its job, armed
    ALONE_LIVE = 2  # the only run of its job, live


class ArmedRun(Struct, eq=False, kw_only=True, gc=False):
    """An attempt that is claimed, ready to send, and not settled."""

    key: RunKey
    token: int
    fire_at_us: int
    attempt: int  # counted as `max_attempts` does, from 1
    trigger: Trigger
    lane: Lane
    is_first: bool  # no attempt of the run was sent before, so overlap applies
    version: int  # of the job, when the request was built
    rules: Rules
    route: Route
    priority: int
    prepared: Prepared
    is_carried: bool = False  # in the database this shard carries it, whoever owns its partition
    is_followed: bool = False  # its job is due again within `SOON_US`
    phase: Phase = Phase.ARMED
    vouched: int = 0  # the latest change that it includes, see `Doubts`
    started_us: int | None = None  # when it went to the socket
    claim_by_us: int = 0  # if it was parked: until when a worker must take it; machine's clock
    index: Index = Index.SHARED  # written by the registry only

    def enter(self, phase: Phase) -> None:
        """Moves to another phase. Hot paths assign `phase` directly instead."""
        if phase is not self.phase and phase not in NEXT[self.phase]:
            raise IllegalMove(state=self.phase.name, event=phase.name)
        self.phase = phase


class Wait(Struct, frozen=True, gc=False):
    """The wait of a batch for a worker that pulls."""

    until_us: int  # by the machine's clock
    began_us: int  # by the database's clock


class Batch(Struct, eq=False, gc=False):
    """Runs of one route that are sent in one request. They have one due time, and either all of
    them are first attempts or none is."""

    route: Route
    lane: Lane
    priority: int
    fire_at_us: int
    runs: list[ArmedRun]
    withdrawals: int = -1  # the registry's count when none of the runs was withdrawn
    wait: Wait | None = None  # only on routes with a room

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def subject(self) -> Hashable:
        """What a failed response counts against: the job, or the route if a request carries runs
        of many jobs."""
        return self.route if self.route.batch > 1 else self.runs[0].key.job_id

    @property
    def claim_by_us(self) -> int:
        """Until when a worker must take the runs."""
        assert self.wait is not None
        return self.wait.until_us

    def split(self, count: int) -> Self:
        """Removes the first `count` runs, and returns them as another batch."""
        first = type(self)(
            self.route,
            self.lane,
            self.priority,
            self.fire_at_us,
            self.runs[:count],
            self.withdrawals,
            self.wait,
        )
        del self.runs[:count]
        return first

    @property
    def is_full(self) -> bool:
        return len(self.runs) >= self.route.batch
