"""Which runs wait for a held run of their job."""

from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.shard.armed_runs import RULES, armed

from wheelsched.core.model import Lane
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.shard.runs.held_runs import HeldRuns

JOB, OTHER = UUID(int=1), UUID(int=2)


def test_a_later_run_of_the_job_waits_until_the_hold_ends() -> None:
    held = HeldRuns()
    first, second = armed(10, job_id=JOB), armed(20, job_id=JOB)
    held.add(first)
    assert held.is_any_ahead_of(second)
    assert not held.is_any_ahead_of(first)
    assert not held.is_any_ahead_of(armed(5, job_id=JOB))
    assert not held.is_any_ahead_of(armed(20, job_id=OTHER))
    held.discard(second)  # it is not held
    assert held.is_any_ahead_of(second)
    held.discard(first)
    assert not held.is_any_ahead_of(second)


def test_a_run_on_time_does_not_wait_for_a_late_one() -> None:
    held = HeldRuns()
    held.add(armed(10, job_id=JOB, lane=Lane.LATE))
    assert not held.is_any_ahead_of(armed(20, job_id=JOB))
    assert held.is_any_ahead_of(armed(20, job_id=JOB, lane=Lane.LATE))


@pytest.mark.parametrize("policy", OnOverlap)
def test_only_runs_that_may_overlap_do_not_wait(policy: OnOverlap) -> None:
    held = HeldRuns()
    held.add(armed(10, job_id=JOB))
    later = armed(20, job_id=JOB)
    later.rules = replace(RULES, overlap=OverlapPolicy(policy=policy))
    assert held.is_any_ahead_of(later) is (policy is not OnOverlap.ALLOW)
