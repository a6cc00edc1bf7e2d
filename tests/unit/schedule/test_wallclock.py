"""Due times at the limits of the supported range."""

from tests.unit.schedule.due import JOB, schedule_of

from wheelsched.core.policies import misfire
from wheelsched.core.policies.policy import MisfirePolicy
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse

SECOND = 1_000_000


def test_the_due_time_after_the_first_second_of_all_is_not_that_second() -> None:
    schedule = compile_schedule(parse("* * * * *", now_us=-1), JOB, 0)
    assert schedule.next_after(-1) == 0
    assert schedule.next_after(0) == 60 * SECOND
    assert schedule.next_after(1) == 60 * SECOND
    assert schedule.next_after(-(10**20)) == 0


def test_a_timer_at_the_first_second_of_all_moves_on() -> None:
    schedule = schedule_of("* * * * *", after="1970-01-01T00:00")
    decision = misfire.decide(MisfirePolicy(), schedule, 0, 30 * SECOND)
    assert [fire.due_us for fire in decision.fires] == [0]
    assert decision.next_due_us == 60 * SECOND
