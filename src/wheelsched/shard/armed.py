"""Armed runs: what stands between a claim in the database and an outcome.

Invariant: one `ArmedRun` per attempt. It holds no more of its job than firing and settling ask for:
half a million of them wait for one hot second. Nothing here is part of a cycle, so that the garbage
collector need not know of it (`gc=False`): it would look at all of them when there is no time to.
"""

from collections.abc import Hashable
from functools import lru_cache

from msgspec import Struct

from wheelsched.core.duration import SECOND
from wheelsched.core.model import Job, Lane, RunKey, Trigger
from wheelsched.core.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.ports import Prepared, Route

SOON_US = 5 * SECOND  # after a due time: the next run of the job waits for the end of this one


class Rules(Struct, frozen=True):
    """The policies of a job: most jobs share theirs with many others."""

    misfire: MisfirePolicy
    overlap: OverlapPolicy
    retry: RetryPolicy
    timeout_us: int


@lru_cache(maxsize=4_096)
def _shared(rules: Rules) -> Rules:
    return rules


def rules_of(job: Job) -> Rules:
    """The rules of a job; one object for all jobs with the same."""
    return _shared(Rules(job.misfire, job.overlap, job.retry, job.timeout_us))


class ArmedRun(Struct, eq=False, kw_only=True, gc=False):
    """An attempt of a run that is claimed, ready to send, and not settled."""

    key: RunKey
    token: int
    fire_at_us: int
    attempt: int  # its number as `max_attempts` counts, from 1
    trigger: Trigger
    lane: Lane
    is_first: bool  # nothing of this run was sent before: overlap is decided about it
    version: int  # of the job that the request was made from
    rules: Rules
    route: Route
    priority: int
    prepared: Prepared
    is_followed: bool = False  # its job is due again soon after it
    vouched: int = 0  # up to which change of its job it is known to be as it should, see `Doubts`
    is_held: bool = False  # its time has come, and it waits for that look
    is_withdrawn: bool = False  # it is not sent any more
    started_us: int | None = None  # when it went to the socket
    # What `Unfinished` alone writes: so half a million that begin at once need no look at anything.
    is_alone: bool = False  # nothing else of its job is unfinished
    is_live: bool = False  # it is alone, and was dispatched


class Batch(Struct, eq=False, gc=False):
    """Runs of one route that go out together, in one request: for one time, all of them first
    attempts or none."""

    route: Route
    lane: Lane
    priority: int
    fire_at_us: int
    runs: list[ArmedRun]

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def subject(self) -> Hashable:
        """What a bad answer is held against: the job; where a request carries runs of many jobs,
        the route that they share."""
        return self.route if self.route.target.batch > 1 else self.runs[0].key.job_id

    @property
    def is_full(self) -> bool:
        return len(self.runs) >= self.route.target.batch
