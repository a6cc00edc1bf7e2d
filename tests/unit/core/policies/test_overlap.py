from uuid import UUID

import pytest

from wheelsched.core.model import Lane, RunKey, SkipReason, Trigger
from wheelsched.core.policies.overlap import MAX_QUEUED, Decision, Fire, Queue, Skip, decide
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy

FIRST, SECOND, THIRD = (RunKey(UUID(int=7), due_us) for due_us in (1, 2, 3))

EACH_POLICY = pytest.mark.parametrize("choice", list(OnOverlap))
MUST_RUN = pytest.mark.parametrize(
    ("trigger", "lane"),
    [
        (Trigger.MANUAL, Lane.ON_TIME),
        (Trigger.BACKFILL, Lane.LATE),
        (Trigger.SCHEDULE, Lane.LATE),
    ],
)


def decided(
    choice: OnOverlap,
    *live: RunKey,
    max_concurrent: int | None = None,
    trigger: Trigger = Trigger.SCHEDULE,
    lane: Lane = Lane.ON_TIME,
    ahead: int = 0,
    settling: int = 0,
) -> Decision:
    policy = OverlapPolicy(policy=choice, max_concurrent=max_concurrent)
    return decide(policy, trigger=trigger, lane=lane, live=live, ahead=ahead, settling=settling)


@EACH_POLICY
def test_a_run_alone_fires(choice: OnOverlap) -> None:
    assert decided(choice) == Fire()


@pytest.mark.parametrize("choice", sorted(set(OnOverlap) - {OnOverlap.SKIP}))
def test_below_max_concurrent_a_run_fires(choice: OnOverlap) -> None:
    assert decided(choice, FIRST, SECOND, max_concurrent=3) == Fire()


def test_skip_skips_a_run_that_would_be_the_second() -> None:
    assert decided(OnOverlap.SKIP, FIRST) == Skip(reason=SkipReason.OVERLAP)


def test_skip_never_has_two_live_runs_whatever_max_concurrent_says() -> None:
    assert decided(OnOverlap.SKIP, FIRST, max_concurrent=3) == Skip(reason=SkipReason.OVERLAP)


def test_skip_lets_a_run_wait_for_an_outcome_that_is_not_written_yet() -> None:
    assert decided(OnOverlap.SKIP, FIRST, settling=1) == Queue()
    assert decided(OnOverlap.SKIP, FIRST, settling=1, ahead=1) == Queue()
    full = decided(OnOverlap.SKIP, FIRST, settling=1, ahead=MAX_QUEUED)
    assert full == Skip(reason=SkipReason.QUEUE_FULL)
    beside = decided(OnOverlap.SKIP, FIRST, SECOND, settling=1)
    assert beside == Skip(reason=SkipReason.OVERLAP)


def test_skip_does_not_let_a_run_overtake_those_that_wait() -> None:
    assert decided(OnOverlap.SKIP, ahead=1) == Queue()


def test_queue_lets_a_run_wait() -> None:
    assert decided(OnOverlap.QUEUE, FIRST) == Queue()


def test_queue_keeps_the_order_of_those_that_wait() -> None:
    assert decided(OnOverlap.QUEUE, ahead=1) == Queue()
    assert decided(OnOverlap.QUEUE, ahead=1, max_concurrent=2) == Fire()


def test_a_schedule_faster_than_its_runs_does_not_queue_without_end() -> None:
    assert decided(OnOverlap.QUEUE, FIRST, ahead=MAX_QUEUED - 1) == Queue()
    full = decided(OnOverlap.QUEUE, FIRST, ahead=MAX_QUEUED)
    assert full == Skip(reason=SkipReason.QUEUE_FULL)


def test_allow_fires_beside_the_others() -> None:
    assert decided(OnOverlap.ALLOW, FIRST, SECOND, THIRD) == Fire()


def test_allow_with_a_bound_lets_the_surplus_wait() -> None:
    assert decided(OnOverlap.ALLOW, FIRST, SECOND, max_concurrent=2) == Queue()


def test_cancel_makes_room_by_cancelling_the_oldest() -> None:
    assert decided(OnOverlap.CANCEL, FIRST) == Fire(cancel=(FIRST,))
    assert decided(OnOverlap.CANCEL, FIRST, SECOND, max_concurrent=2) == Fire(cancel=(FIRST,))


def test_cancel_makes_room_also_after_the_bound_was_lowered() -> None:
    assert decided(OnOverlap.CANCEL, FIRST, SECOND, THIRD) == Fire(cancel=(FIRST, SECOND, THIRD))


@EACH_POLICY
@MUST_RUN
def test_a_requested_or_late_run_waits_at_the_limit(
    choice: OnOverlap, trigger: Trigger, lane: Lane
) -> None:
    decision = decided(
        choice, FIRST, max_concurrent=1, trigger=trigger, lane=lane, ahead=10 * MAX_QUEUED
    )
    assert decision == Queue()


@EACH_POLICY
@MUST_RUN
def test_a_requested_or_late_run_fires_below_the_limit(
    choice: OnOverlap, trigger: Trigger, lane: Lane
) -> None:
    assert decided(choice, trigger=trigger, lane=lane) == Fire()


def test_an_on_time_run_does_not_wait_for_the_late_ones() -> None:
    assert decided(OnOverlap.CANCEL, ahead=100) == Fire()
