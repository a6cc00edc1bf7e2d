"""The misfire decision against a model that is a plain list of due times."""

from bisect import bisect_left, bisect_right

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from wheelsched.core.model import Lane
from wheelsched.core.policies.misfire import MAX_ON_TIME, decide
from wheelsched.core.policies.policy import MisfirePolicy, OnMisfire


class Listed:
    """A schedule that is a list of due times, with a jitter below the gap to the next."""

    def __init__(self, due_times: list[int], jitter_share: float) -> None:
        self.due_times = due_times
        self.jitter_share = jitter_share

    def next_after(self, after_us: int) -> int | None:
        index = bisect_right(self.due_times, after_us)
        return self.due_times[index] if index < len(self.due_times) else None

    def last_before(self, before_us: int) -> int | None:
        index = bisect_left(self.due_times, before_us)
        return self.due_times[index - 1] if index else None

    def count(self, after_us: int, until_us: int) -> int:
        return bisect_right(self.due_times, until_us) - bisect_right(self.due_times, after_us)

    def jitter_us(self, due_us: int) -> int:
        next_us = self.next_after(due_us)
        gap_us = 50 if next_us is None else next_us - due_us
        return int(gap_us * self.jitter_share)


class Case(Struct, frozen=True):
    policy: MisfirePolicy
    schedule: Listed
    due_us: int
    now_us: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    due_times = draw(st.lists(st.integers(0, 1_000), min_size=1, max_size=60, unique=True))
    schedule = Listed(sorted(due_times), draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])))
    policy = MisfirePolicy(
        policy=draw(st.sampled_from(OnMisfire)),
        grace_us=draw(st.integers(0, 300)),
        window_us=draw(st.integers(0, 900)),
        max_missed=draw(st.integers(1, 8)),
    )
    # Now and then the timer stands at a time that the schedule no longer gives.
    due_us = draw(st.sampled_from(due_times) | st.integers(0, 1_000))
    return Case(policy, schedule, due_us, draw(st.integers(-100, 1_300)))


def due_times_up_to_now(case: Case) -> list[int]:
    later = [due for due in case.schedule.due_times if case.due_us < due <= case.now_us]
    return [case.due_us, *later]


@given(cases())
def test_every_due_time_is_accounted_for_exactly_once(case: Case) -> None:
    decision = decide(case.policy, case.schedule, case.due_us, case.now_us)
    expected = due_times_up_to_now(case)
    assert len(expected) < MAX_ON_TIME

    fired = [fire.due_us for fire in decision.fires]
    skipped: list[int] = []
    if decision.skip is not None:
        skipped = [
            due for due in expected if decision.skip.first_us <= due <= decision.skip.last_us
        ]
        assert decision.skip.count == len(skipped) > 0
        assert decision.skip.first_us == skipped[0]
        assert decision.skip.last_us == skipped[-1]
    assert skipped + fired == expected


@given(cases())
def test_the_next_due_time_is_the_first_that_is_left(case: Case) -> None:
    decision = decide(case.policy, case.schedule, case.due_us, case.now_us)
    last = due_times_up_to_now(case)[-1]
    left = [due for due in case.schedule.due_times if due > last]
    assert decision.next_due_us == (left[0] if left else None)


@given(cases())
def test_the_model_fires_the_same(case: Case) -> None:
    """Sort every due time by its age, one by one, as DESIGN words it."""
    policy = case.policy
    ages = {
        due: case.now_us - due - case.schedule.jitter_us(due) for due in due_times_up_to_now(case)
    }
    on_time = [due for due, age in ages.items() if age <= policy.grace_us]
    missed = [due for due, age in ages.items() if policy.grace_us < age <= policy.window_us]
    limit = {OnMisfire.SKIP: 0, OnMisfire.ONCE: 1, OnMisfire.ALL: policy.max_missed}
    late = missed[max(len(missed) - limit[policy.policy], 0) :]

    decision = decide(policy, case.schedule, case.due_us, case.now_us)
    assert [fire.due_us for fire in decision.fires if fire.lane is Lane.LATE] == late
    assert [fire.due_us for fire in decision.fires if fire.lane is Lane.ON_TIME] == on_time
    for fire in decision.fires:
        assert fire.fire_at_us == fire.due_us + case.schedule.jitter_us(fire.due_us)


@given(cases(), st.lists(st.integers(0, 400), max_size=10))
def test_a_chain_of_decisions_loses_and_repeats_nothing(case: Case, pauses: list[int]) -> None:
    due_us: int | None = case.due_us
    now_us = case.now_us
    accounted = 0
    for pause in [*pauses, 2_000]:
        while due_us is not None and due_us <= now_us:
            decision = decide(case.policy, case.schedule, due_us, now_us)
            accounted += len(decision.fires) + (decision.skip.count if decision.skip else 0)
            assert decision.next_due_us is None or decision.next_due_us > due_us
            due_us = decision.next_due_us
        now_us += pause
    if due_us is not None:  # the last pause ends after every due time
        decision = decide(case.policy, case.schedule, due_us, now_us)
        accounted += len(decision.fires) + (decision.skip.count if decision.skip else 0)
        assert decision.next_due_us is None
    assert accounted == 1 + sum(due > case.due_us for due in case.schedule.due_times)
