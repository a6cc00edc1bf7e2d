"""One test for each misfire rule. Times are in seconds after an arbitrary noon."""

from collections import Counter
from uuid import UUID

import pytest

from wheelsched.core.model import Lane, SkipReason
from wheelsched.core.policies.misfire import MAX_ON_TIME, Decision, Fire, Skip, decide
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.values.duration import DAY, HOUR, MINUTE, SECOND

NOON = 1_794_830_400 * SECOND
YEAR = 365 * DAY


class Every:
    """Due every `period_us` from `NOON` to `end_us`. It counts the calls of its methods."""

    def __init__(self, period_us: int, *, end_us: int | None = None, jitter_us: int = 0) -> None:
        self.period_us = period_us
        self.end_us = end_us
        self.fixed_jitter_us = jitter_us
        self.calls: Counter[str] = Counter()

    def next_after(self, after_us: int) -> int | None:
        self.calls["next_after"] += 1
        due_us = max(NOON, after_us - (after_us - NOON) % self.period_us + self.period_us)
        return due_us if self.end_us is None or due_us <= self.end_us else None

    def last_before(self, before_us: int) -> int | None:
        self.calls["last_before"] += 1
        bound_us = before_us - 1 if self.end_us is None else min(before_us - 1, self.end_us)
        due_us = bound_us - (bound_us - NOON) % self.period_us
        return due_us if due_us >= NOON else None

    def count(self, after_us: int, until_us: int) -> int:
        self.calls["count"] += 1
        return (until_us - NOON) // self.period_us - (after_us - NOON) // self.period_us

    def jitter_us(self, due_us: int) -> int:
        self.calls["jitter_us"] += 1
        return self.fixed_jitter_us


def policy(
    choice: OnMisfire = OnMisfire.ONCE,
    *,
    grace_us: int = MINUTE,
    window_us: int = HOUR,
    max_missed: int = 100,
) -> MisfirePolicy:
    return MisfirePolicy(
        policy=choice, grace_us=grace_us, window_us=window_us, max_missed=max_missed
    )


def fired(decision: Decision, lane: Lane) -> list[int]:
    return [(fire.due_us - NOON) // SECOND for fire in decision.fires if fire.lane is lane]


EACH_POLICY = pytest.mark.parametrize("choice", list(OnMisfire))


def test_the_defaults_are_those_of_the_design() -> None:
    assert policy() == MisfirePolicy()


@EACH_POLICY
def test_a_timer_ahead_of_its_time_fires_on_time(choice: OnMisfire) -> None:
    decision = decide(policy(choice), Every(HOUR), NOON, NOON - 30 * SECOND)
    assert decision == Decision(
        skip=None,
        fires=(Fire(due_us=NOON, fire_at_us=NOON, lane=Lane.ON_TIME),),
        next_due_us=NOON + HOUR,
    )


def test_arming_ahead_takes_the_one_due_time_of_the_timer() -> None:
    decision = decide(policy(), Every(SECOND), NOON, NOON - 30 * SECOND)
    assert fired(decision, Lane.ON_TIME) == [0]
    assert decision.next_due_us == NOON + SECOND


@EACH_POLICY
def test_within_its_grace_a_due_time_counts_as_on_time(choice: OnMisfire) -> None:
    decision = decide(policy(choice), Every(HOUR), NOON, NOON + MINUTE)
    assert fired(decision, Lane.ON_TIME) == [0]
    assert decision.skip is None


@EACH_POLICY
def test_every_due_time_within_the_grace_fires(choice: OnMisfire) -> None:
    decision = decide(policy(choice), Every(15 * SECOND), NOON, NOON + 50 * SECOND)
    assert fired(decision, Lane.ON_TIME) == [0, 15, 30, 45]
    assert decision.next_due_us == NOON + MINUTE


def test_one_microsecond_past_its_grace_it_is_missed() -> None:
    decision = decide(policy(OnMisfire.SKIP), Every(HOUR), NOON, NOON + MINUTE + 1)
    assert decision.fires == ()
    assert decision.skip == Skip(
        reason=SkipReason.MISFIRE_SKIP, count=1, first_us=NOON, last_us=NOON
    )
    assert decision.next_due_us == NOON + HOUR


def test_once_fires_the_latest_missed_and_skips_those_before() -> None:
    now_us = NOON + 35 * MINUTE
    decision = decide(policy(), Every(10 * MINUTE), NOON, now_us)
    assert fired(decision, Lane.LATE) == [1800]
    assert fired(decision, Lane.ON_TIME) == []
    assert decision.skip == Skip(
        reason=SkipReason.SUPERSEDED, count=3, first_us=NOON, last_us=NOON + 20 * MINUTE
    )
    assert decision.next_due_us == NOON + 40 * MINUTE


def test_once_with_a_single_missed_due_time_skips_nothing() -> None:
    decision = decide(policy(), Every(HOUR), NOON, NOON + 10 * MINUTE)
    assert fired(decision, Lane.LATE) == [0]
    assert decision.skip is None


def test_all_fires_every_missed_due_time_oldest_first_in_the_late_lane() -> None:
    decision = decide(policy(OnMisfire.ALL), Every(10 * MINUTE), NOON, NOON + 35 * MINUTE)
    assert fired(decision, Lane.LATE) == [0, 600, 1200, 1800]
    assert decision.skip is None


def test_all_fires_at_most_max_missed_and_skips_the_oldest() -> None:
    decision = decide(
        policy(OnMisfire.ALL, max_missed=2), Every(10 * MINUTE), NOON, NOON + 35 * MINUTE
    )
    assert fired(decision, Lane.LATE) == [1200, 1800]
    assert decision.skip == Skip(
        reason=SkipReason.MAX_MISSED, count=2, first_us=NOON, last_us=NOON + 10 * MINUTE
    )


def test_skip_fires_nothing_that_is_missed() -> None:
    decision = decide(policy(OnMisfire.SKIP), Every(10 * MINUTE), NOON, NOON + 35 * MINUTE)
    assert decision.fires == ()
    assert decision.skip is not None
    assert decision.skip.count == 4
    assert decision.next_due_us == NOON + 40 * MINUTE


@EACH_POLICY
def test_the_policy_decides_about_the_missed_only(choice: OnMisfire) -> None:
    decision = decide(policy(choice), Every(10 * MINUTE), NOON, NOON + 30 * MINUTE + SECOND)
    assert fired(decision, Lane.ON_TIME) == [1800]


@EACH_POLICY
def test_past_the_window_the_schedule_advances(choice: OnMisfire) -> None:
    decision = decide(policy(choice), Every(DAY), NOON, NOON + 2 * HOUR)
    assert decision.fires == ()
    assert decision.skip == Skip(
        reason=SkipReason.PAST_WINDOW, count=1, first_us=NOON, last_us=NOON
    )
    assert decision.next_due_us == NOON + DAY


def test_exactly_at_the_edge_of_the_window_a_due_time_is_within_it() -> None:
    assert fired(decide(policy(), Every(DAY), NOON, NOON + HOUR), Lane.LATE) == [0]
    assert fired(decide(policy(), Every(DAY), NOON, NOON + HOUR + 1), Lane.LATE) == []


def test_all_skips_due_times_past_the_window_with_a_reason() -> None:
    decision = decide(policy(OnMisfire.ALL), Every(30 * MINUTE), NOON, NOON + 2 * HOUR - SECOND)
    assert fired(decision, Lane.LATE) == [3600, 5400]
    assert decision.skip is not None
    assert decision.skip.reason is SkipReason.PAST_WINDOW
    assert decision.skip.count == 2


def test_the_reason_of_a_summary_is_that_of_its_last_due_time() -> None:
    decision = decide(policy(), Every(30 * MINUTE), NOON, NOON + 2 * HOUR - SECOND)
    assert decision.skip == Skip(
        reason=SkipReason.SUPERSEDED, count=3, first_us=NOON, last_us=NOON + HOUR
    )


def test_the_last_due_time_of_a_schedule_leaves_no_next() -> None:
    schedule = Every(HOUR, end_us=NOON)
    assert decide(policy(), schedule, NOON, NOON).next_due_us is None
    assert decide(policy(), schedule, NOON, NOON + YEAR).next_due_us is None


def test_jitter_moves_the_dispatch_and_not_the_due_time() -> None:
    decision = decide(policy(), Every(HOUR, jitter_us=10 * SECOND), NOON, NOON - SECOND)
    (fire,) = decision.fires
    assert fire == Fire(due_us=NOON, fire_at_us=NOON + 10 * SECOND, lane=Lane.ON_TIME)


def test_the_grace_begins_after_the_jitter() -> None:
    schedule = Every(HOUR, jitter_us=30 * MINUTE)
    still_to_come = decide(policy(OnMisfire.SKIP), schedule, NOON, NOON + 20 * MINUTE)
    assert fired(still_to_come, Lane.ON_TIME) == [0]
    within_grace = decide(policy(OnMisfire.SKIP), schedule, NOON, NOON + 31 * MINUTE)
    assert fired(within_grace, Lane.ON_TIME) == [0]
    missed = decide(policy(OnMisfire.SKIP), schedule, NOON, NOON + 31 * MINUTE + 1)
    assert missed.fires == ()


def test_a_due_time_that_new_zone_rules_moved_is_still_accounted_for() -> None:
    promised_us = NOON + 90 * MINUTE
    decision = decide(policy(OnMisfire.SKIP), Every(HOUR), promised_us, NOON + 2 * HOUR + DAY)
    assert decision.skip is not None
    assert decision.skip.first_us == promised_us
    assert decision.skip.count == 1 + 24
    on_time = decide(policy(), Every(HOUR), promised_us, promised_us)
    assert fired(on_time, Lane.ON_TIME) == [5400]
    assert on_time.next_due_us == NOON + 2 * HOUR


@pytest.mark.parametrize(
    ("choice", "late"), [(OnMisfire.ONCE, 1), (OnMisfire.ALL, 100), (OnMisfire.SKIP, 0)]
)
def test_a_year_without_a_one_second_job_is_decided_by_jumping(
    choice: OnMisfire, late: int
) -> None:
    schedule = Every(SECOND)
    decision = decide(policy(choice), schedule, NOON, NOON + YEAR)
    assert decision.skip is not None
    assert len(fired(decision, Lane.LATE)) == late
    assert len(fired(decision, Lane.ON_TIME)) == 61
    assert decision.skip.count + late + 61 == YEAR // SECOND + 1
    assert decision.next_due_us == NOON + YEAR + SECOND
    assert schedule.calls["count"] == 1
    assert schedule.calls["last_before"] <= late + 3
    assert schedule.calls.total() <= 3 * (late + 61) + 10


@pytest.mark.parametrize("written", ["* * * * * *", "every 1s", "RRULE:FREQ=SECONDLY"])
def test_a_year_is_decided_for_every_kind_of_schedule(written: str) -> None:
    spec = parse(written, timezone="America/New_York", now_us=NOON)
    schedule = compile_schedule(spec, UUID(int=7), NOON)
    due_us = NOON + SECOND
    decision = decide(policy(OnMisfire.ALL), schedule, due_us, due_us + YEAR)
    assert decision.skip is not None
    assert decision.skip.count + len(decision.fires) == YEAR // SECOND + 1
    assert decision.skip.last_us + SECOND == decision.fires[0].due_us
    assert decision.next_due_us == due_us + YEAR + SECOND


def test_on_the_hot_path_the_schedule_is_asked_for_nothing_but_the_next_due_time() -> None:
    schedule = Every(SECOND)
    decide(policy(), schedule, NOON, NOON - SECOND)
    assert schedule.calls == {"next_after": 1, "jitter_us": 1}


def test_a_long_grace_over_a_fast_schedule_is_armed_in_portions() -> None:
    generous = policy(grace_us=HOUR)
    now_us = NOON + 1_500 * SECOND
    first = decide(generous, Every(SECOND), NOON, now_us)
    assert len(first.fires) == MAX_ON_TIME
    assert first.next_due_us == NOON + MAX_ON_TIME * SECOND
    rest = decide(generous, Every(SECOND), first.next_due_us, now_us)
    assert len(rest.fires) == 501
    assert rest.next_due_us == now_us + SECOND


def test_a_window_shorter_than_the_grace_catches_up_nothing() -> None:
    decision = decide(policy(OnMisfire.ALL, window_us=0), Every(HOUR), NOON, NOON + 2 * MINUTE)
    assert decision.fires == ()
    assert decision.skip is not None
    assert decision.skip.reason is SkipReason.PAST_WINDOW


def test_a_run_ten_minutes_late_is_decided_with_few_questions() -> None:
    """After an outage, all timers are decided at once."""
    schedule = Every(MINUTE)
    decision = decide(policy(), schedule, NOON, NOON + 10 * MINUTE + SECOND)
    assert decision.skip is not None
    assert decision.skip.count == 9
    assert schedule.calls["last_before"] == 2
    assert schedule.calls["count"] == 1
    assert schedule.calls["next_after"] == 2
