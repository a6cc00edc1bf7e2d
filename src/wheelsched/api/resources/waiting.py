"""Tells what a due run waits for: a circuit breaker, or a worker of its queue.

Invariant: a tenant learns only about its own breakers.
"""

from wheelsched.core.model import BreakerKind, HttpTarget, Job, QueueTarget, Run, RunState, Target
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.target import check_url
from wheelsched.errors import InvalidField
from wheelsched.ports import LeaseStore, OpenBreaker
from wheelsched.wire.instant import instant, instant_text


class Waiting:
    """Looks up the open breakers of shards."""

    def __init__(self, leases: LeaseStore, rules: EgressRules) -> None:
        self._leases = leases
        self._rules = rules

    async def reason(self, run: Run, job: Job, now_us: int) -> str | None:
        """Why a due run has not ended; None if nothing holds it back."""
        if run.shard is None or not is_overdue(run, now_us):
            return None
        shown = await self._leases.read_breakers(run.shard)
        targets = {
            (BreakerKind.ORIGIN, self._origin(job.target)),
            (BreakerKind.TARGET, job.target.name),
        }
        for breaker in shown.get(run.shard, ()):
            is_of_job = breaker.job_id == job.job_id
            is_of_target = (breaker.kind, breaker.target) in targets
            if is_of_job or (is_of_target and breaker.tenant_id == job.tenant_id):
                return in_words(breaker)
        if isinstance(job.target, QueueTarget):
            return (
                f"a worker of the queue {job.target.queue}: none has taken the run yet, or the "
                "worker that took it has not reported its outcome"
            )
        return None

    def _origin(self, target: Target) -> str:
        if not isinstance(target, HttpTarget):
            return target.name
        try:
            return check_url(target.url, self._rules).origin
        except InvalidField:
            return ""


def is_overdue(run: Run, now_us: int) -> bool:
    """True if the run is armed and due."""
    due_us = run.due_us if run.retry_at_us is None else run.retry_at_us
    return run.state is RunState.ARMED and due_us <= now_us


def in_words(breaker: OpenBreaker) -> str:
    """A breaker described for users."""
    whose = "this job" if breaker.kind is BreakerKind.JOB else breaker.target
    opened_at = instant_text(instant(breaker.opened_at_us))
    next_at = instant_text(instant(breaker.next_probe_at_us))
    return (
        f"the circuit breaker of {whose}, open since {opened_at}; "
        f"next probe at {next_at}; last error: {breaker.error}"
    )
