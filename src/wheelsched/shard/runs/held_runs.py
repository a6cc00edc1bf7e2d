"""The runs that are due and held for revalidation, by job.

A run is held if it is in doubt, or if it was live and is armed again before it was sent.

Invariant: a later run of a job does not overtake a held one. It waits until the held run is
admitted or withdrawn. Otherwise `queue` would send the two in the wrong order, and under `cancel`
the earlier run would cancel the later one. Under `allow` runs do not wait for each other.
"""

from uuid import UUID

from wheelsched.core.policies.policy import OnOverlap
from wheelsched.shard.runs.armed_run import ArmedRun
from wheelsched.shard.runs.overlap_queue import OverlapQueue


class HeldRuns:
    """The held runs of each job, in the order in which they go."""

    def __init__(self) -> None:
        self._by_job: dict[UUID, OverlapQueue] = {}

    def add(self, run: ArmedRun) -> None:
        self._by_job.setdefault(run.key.job_id, OverlapQueue()).add(run)

    def discard(self, run: ArmedRun) -> None:
        """Removes a run, if it is there."""
        held = self._by_job.get(run.key.job_id)
        if held is not None and held.discard(run) and not held:
            del self._by_job[run.key.job_id]

    def is_any_ahead_of(self, run: ArmedRun) -> bool:
        """Whether a run has to wait for a held run of its job."""
        held = self._by_job.get(run.key.job_id)
        if held is None or run.rules.overlap.policy is OnOverlap.ALLOW:
            return False
        return held.ahead_of(run) > 0
