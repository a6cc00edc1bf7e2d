"""What a run waits for: the circuit breaker that holds it back, by the word of its shard.

Invariant: a tenant hears of no breaker but its own.
"""

from wheelsched.core.egress import EgressRules
from wheelsched.core.model import BreakerKind, Job, Run, RunState
from wheelsched.core.target import check_url
from wheelsched.errors import InvalidField
from wheelsched.ports import LeaseStore, OpenBreaker
from wheelsched.wire.instant import instant


class Waiting:
    """Asks for breakers."""

    def __init__(self, leases: LeaseStore, rules: EgressRules) -> None:
        self._leases = leases
        self._rules = rules

    async def reason(self, run: Run, job: Job, now_us: int) -> str | None:
        """Why a run that is due has not been sent; None if no breaker is open for it."""
        if run.shard is None or not is_overdue(run, now_us):
            return None
        shown = await self._leases.read_breakers(run.shard)
        places = {(BreakerKind.ORIGIN, self._origin(job)), (BreakerKind.TARGET, job.target.url)}
        for breaker in shown.get(run.shard, ()):
            is_of_job = breaker.job_id == job.job_id
            is_of_place = (breaker.kind, breaker.target) in places
            if is_of_job or (is_of_place and breaker.tenant_id == job.tenant_id):
                return in_words(breaker)
        return None

    def _origin(self, job: Job) -> str:
        try:
            return check_url(job.target.url, self._rules).origin
        except InvalidField:
            return ""


def is_overdue(run: Run, now_us: int) -> bool:
    """Whether a run is armed, and its time has come."""
    due_us = run.due_us if run.retry_at_us is None else run.retry_at_us
    return run.state is RunState.ARMED and due_us <= now_us


def in_words(breaker: OpenBreaker) -> str:
    """What a user is told of a breaker."""
    whose = "this job" if breaker.kind is BreakerKind.JOB else breaker.target
    opened_at, next_at = instant(breaker.opened_at_us), instant(breaker.next_probe_at_us)
    return (
        f"the circuit breaker of {whose} is open since {opened_at.isoformat()}, "
        f"next probe at {next_at.isoformat()}; last error: {breaker.error}"
    )
