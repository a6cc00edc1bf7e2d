from uuid import uuid4

from tests.unit.shard.runs import armed

from wheelsched.core.model import Lane, RunKey
from wheelsched.shard.unfinished import Unfinished

JOB = uuid4()


def test_a_run_is_armed_then_live_then_forgotten() -> None:
    unfinished = Unfinished()
    run = armed(1, job_id=JOB)
    unfinished.arm(run)
    assert unfinished.armed_count == 1
    assert unfinished.armed_of(JOB) == (run,)
    assert not unfinished.is_live(run.key)
    unfinished.begin(run)
    assert unfinished.armed_count == 0
    assert unfinished.is_live(run.key)
    assert unfinished.has_attempt(run.key)
    unfinished.pause(run.key)
    assert unfinished.is_live(run.key)
    assert not unfinished.has_attempt(run.key)
    unfinished.end(run.key)
    assert not unfinished.has_any(JOB)
    assert unfinished.is_idle(JOB)


def test_a_run_that_is_armed_anew_is_not_sent_as_it_was_before() -> None:
    unfinished = Unfinished()
    before, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for others in ([], [other]):
        anew = armed(1, job_id=JOB)
        for run in (before, *others, anew):
            unfinished.arm(run)
        assert before.is_withdrawn
        assert not anew.is_withdrawn
        assert set(unfinished.armed_of(JOB)) == {*others, anew}
        assert unfinished.armed_count == 1 + len(others)
        unfinished.forget([*others, anew])
        before.is_withdrawn = False


def test_a_run_begins_alone_only_if_nothing_else_of_its_job_is_unfinished() -> None:
    unfinished = Unfinished()
    run, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    assert not unfinished.begin_alone(run)  # it is not armed
    unfinished.arm(run)
    assert unfinished.begin_alone(run)
    assert (unfinished.armed_count, unfinished.live_count) == (0, 1)
    assert unfinished.is_live(run.key)
    unfinished.arm(other)
    assert not unfinished.begin_alone(other)  # one is live
    unfinished.end(run.key)
    unfinished.wait(other)
    assert not unfinished.begin_alone(other)  # it waits in line
    unfinished.take_waiting(other)
    unfinished.begin(other)
    assert (unfinished.armed_count, unfinished.live_count) == (0, 1)
    unfinished.end(other.key)
    unfinished.arm(other)
    assert unfinished.begin_alone(other)
    assert not unfinished.begin_alone(other)  # once


def test_a_run_that_began_alone_ends_so_unless_another_came_or_it_was_looked_at() -> None:
    unfinished = Unfinished()
    run, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for _ in range(2):
        unfinished.arm(run)
        assert not unfinished.end_alone(run.key, run.token)  # it has not begun
        assert unfinished.begin_alone(run)
        assert not unfinished.disarm(run)
        assert not unfinished.end_alone(run.key, run.token + 1)
        assert not unfinished.end_alone(other.key, run.token)
        assert unfinished.end_alone(run.key, run.token)
        assert (unfinished.live_count, unfinished.has_any(JOB)) == (0, False)
    unfinished.arm(run)
    assert unfinished.begin_alone(run)
    unfinished.arm(other)
    assert not unfinished.end_alone(run.key, run.token)
    assert (unfinished.armed_count, unfinished.live_count) == (1, 1)
    unfinished.end(run.key, run.token)
    assert unfinished.armed_of(JOB) == (other,)
    unfinished.forget([other])
    unfinished.arm(run)
    assert unfinished.begin_alone(run)
    (live,) = unfinished.live_of(JOB)
    assert (live.key, live.token, live.armed) == (run.key, run.token, run)
    unfinished.pause(run.key)
    assert not unfinished.has_attempt(run.key)
    assert not unfinished.end_alone(run.key, run.token)
    unfinished.end(run.key, run.token)
    assert (unfinished.live_count, unfinished.has_any(JOB)) == (0, False)


def test_live_runs_stand_in_the_order_of_their_dispatch() -> None:
    unfinished = Unfinished()
    later, earlier = armed(2, job_id=JOB), armed(1, job_id=JOB)
    for run in (later, earlier):
        unfinished.arm(run)
        unfinished.begin(run)
    assert [live.key.due_us for live in unfinished.live_of(JOB)] == [2, 1]


def test_who_waits_stands_on_time_before_late_and_each_by_due_time() -> None:
    unfinished = Unfinished()
    late, second, first = (
        armed(1, job_id=JOB, lane=Lane.LATE),
        armed(3, job_id=JOB),
        armed(2, job_id=JOB),
    )
    for run in (late, second, first):
        unfinished.arm(run)
        unfinished.wait(run)
    assert unfinished.waiting_ahead_of(late) == 2
    assert unfinished.waiting_ahead_of(second) == 1
    assert unfinished.waiting_ahead_of(first) == 0
    for run in (first, second, late):
        assert unfinished.first_waiting(JOB) is run
        unfinished.take_waiting(run)
    assert unfinished.first_waiting(JOB) is None


def test_a_forgotten_run_is_withdrawn_wherever_it_stood() -> None:
    unfinished = Unfinished()
    waiting, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for run in (waiting, other):
        unfinished.arm(run)
        unfinished.wait(run)
    unfinished.forget([waiting])
    assert waiting.is_withdrawn
    assert unfinished.armed_of(JOB) == (other,)
    assert unfinished.first_waiting(JOB) is other


def test_of_a_crowd_each_is_found_and_forgotten_by_its_key() -> None:
    unfinished = Unfinished()
    runs = [armed(due_us, job_id=JOB) for due_us in range(1, 6)]
    for run in runs:
        unfinished.arm(run)
    again = armed(3, job_id=JOB)
    unfinished.arm(again)  # in place of the one with its key
    assert unfinished.armed_count == 5
    assert not unfinished.disarm(runs[2])
    assert unfinished.is_armed(again.key)
    assert unfinished.disarm(again)
    assert not unfinished.knows(again.key)
    left = {run.key for run in runs if run is not runs[2]}
    assert set(unfinished.attempted()) == left
    for run in (*runs[:2], *runs[3:]):
        assert unfinished.disarm(run)
    assert unfinished.armed_count == 0
    assert not unfinished.has_any(JOB)


def test_disarming_twice_counts_once() -> None:
    unfinished = Unfinished()
    run = armed(1)
    unfinished.arm(run)
    assert unfinished.disarm(run)
    assert not unfinished.disarm(run)
    assert unfinished.armed_count == 0


def test_runs_that_others_left_live_are_known() -> None:
    unfinished = Unfinished()
    key = RunKey(JOB, 5)
    unfinished.revive(key, 7)
    assert unfinished.knows(key)
    assert not unfinished.is_idle(JOB)
    assert not unfinished.has_attempt(key)
    assert list(unfinished.job_ids()) == [JOB]
    assert unfinished.live_count == 1


def test_an_attempt_that_ends_late_does_not_end_a_later_one() -> None:
    unfinished = Unfinished()
    key = RunKey(JOB, 5)
    unfinished.revive(key, 7)
    unfinished.revive(key, 8)
    unfinished.end(key, 7)
    (live,) = unfinished.live_of(JOB)
    assert live.token == 8
    unfinished.end(key, 8)
    assert not unfinished.has_any(JOB)
    unfinished.revive(key, 8)
    unfinished.end(key, 9)  # which was armed, and is not sent after all
    assert not unfinished.has_any(JOB)
    unfinished.revive(key, 8)
    unfinished.end(key)  # whatever its attempt
    assert not unfinished.has_any(JOB)


def test_what_runs_elsewhere_has_no_attempt_here() -> None:
    unfinished = Unfinished()
    waiting, sent, accepted = armed(1), armed(2), armed(3)
    for run in (waiting, sent, accepted):
        unfinished.arm(run)
    unfinished.begin(sent)
    unfinished.begin(accepted)
    unfinished.pause(accepted.key)
    attempted = list(unfinished.attempted())
    assert attempted == [waiting.key, sent.key]
    assert unfinished.live_count == 2
    unfinished.end(sent.key)
    unfinished.end(sent.key)
    assert unfinished.live_count == 1


def test_an_end_that_was_decided_twice_is_unwritten_until_both_are() -> None:
    unfinished, key = Unfinished(), armed(1).key
    unfinished.rule(key)
    unfinished.rule(key)
    assert unfinished.put_off(key)
    assert not unfinished.ruling_written(key)
    assert unfinished.is_ruled(key)
    assert unfinished.ruling_written(key)  # there is a retry to look for
    assert not unfinished.knows(key)
    assert not unfinished.put_off(key)
