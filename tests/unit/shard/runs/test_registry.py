"""The registry finds, counts and forgets the unfinished runs of a shard."""

from uuid import uuid4

from tests.unit.shard.armed_runs import armed

from wheelsched.core.model import Lane, RunKey
from wheelsched.shard.runs.phase import Phase
from wheelsched.shard.runs.registry import RunRegistry

JOB = uuid4()


def test_a_run_is_armed_then_live_then_removed() -> None:
    registry = RunRegistry(most=1_000)
    run = armed(1, job_id=JOB)
    registry.arm(run)
    assert registry.armed_count == 1
    assert registry.armed_of(JOB) == (run,)
    assert not registry.is_live(run.key)
    registry.begin(run)
    assert registry.armed_count == 0
    assert registry.is_live(run.key)
    assert registry.has_attempt(run.key)
    registry.pause(run.key)
    assert registry.is_live(run.key)
    assert not registry.has_attempt(run.key)
    registry.end(run.key)
    assert not registry.has_any(JOB)
    assert registry.is_idle(JOB)


def test_a_new_attempt_replaces_the_armed_one() -> None:
    registry = RunRegistry(most=1_000)
    before, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for others in ([], [other]):
        anew = armed(1, job_id=JOB)
        for run in (before, *others, anew):
            registry.arm(run)
        assert before.phase is Phase.WITHDRAWN
        assert anew.phase is Phase.ARMED
        assert set(registry.armed_of(JOB)) == {*others, anew}
        assert registry.armed_count == 1 + len(others)
        registry.forget([*others, anew])
        before.phase = Phase.ARMED


def test_a_run_begins_alone_only_if_its_job_has_no_other() -> None:
    registry = RunRegistry(most=1_000)
    run, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    assert not registry.begin_alone(run)  # it is not armed
    registry.arm(run)
    assert registry.begin_alone(run)
    assert (registry.armed_count, registry.live_count) == (0, 1)
    assert registry.is_live(run.key)
    registry.arm(other)
    assert not registry.begin_alone(other)  # one is live
    registry.end(run.key)
    registry.wait(other)
    assert not registry.begin_alone(other)  # it waits
    registry.take_waiting(other)
    registry.begin(other)
    assert (registry.armed_count, registry.live_count) == (0, 1)
    registry.end(other.key)
    registry.arm(other)
    assert registry.begin_alone(other)
    assert not registry.begin_alone(other)  # once


def test_a_run_ends_alone_unless_another_came_or_it_was_moved() -> None:
    registry = RunRegistry(most=1_000)
    run, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for _ in range(2):
        registry.arm(run)
        assert not registry.end_alone(run.key, run.token)  # it has not begun
        assert registry.begin_alone(run)
        assert not registry.disarm(run)
        assert not registry.end_alone(run.key, run.token + 1)
        assert not registry.end_alone(other.key, run.token)
        assert registry.end_alone(run.key, run.token)
        assert (registry.live_count, registry.has_any(JOB)) == (0, False)
    registry.arm(run)
    assert registry.begin_alone(run)
    registry.arm(other)
    assert not registry.end_alone(run.key, run.token)
    assert (registry.armed_count, registry.live_count) == (1, 1)
    registry.end(run.key, run.token)
    assert registry.armed_of(JOB) == (other,)
    registry.forget([other])
    registry.arm(run)
    assert registry.begin_alone(run)
    (live,) = registry.live_of(JOB)
    assert (live.key, live.token, live.armed) == (run.key, run.token, run)
    registry.pause(run.key)
    assert not registry.has_attempt(run.key)
    assert not registry.end_alone(run.key, run.token)
    registry.end(run.key, run.token)
    assert (registry.live_count, registry.has_any(JOB)) == (0, False)


def test_live_runs_are_in_the_order_of_dispatch() -> None:
    registry = RunRegistry(most=1_000)
    later, earlier = armed(2, job_id=JOB), armed(1, job_id=JOB)
    for run in (later, earlier):
        registry.arm(run)
        registry.begin(run)
    assert [live.key.due_us for live in registry.live_of(JOB)] == [2, 1]


def test_waiting_runs_are_on_time_before_late_and_by_due_time() -> None:
    registry = RunRegistry(most=1_000)
    late, second, first = (
        armed(1, job_id=JOB, lane=Lane.LATE),
        armed(3, job_id=JOB),
        armed(2, job_id=JOB),
    )
    for run in (late, second, first):
        registry.arm(run)
        registry.wait(run)
    assert registry.waiting_ahead_of(late) == 2
    assert registry.waiting_ahead_of(second) == 1
    assert registry.waiting_ahead_of(first) == 0
    for run in (first, second, late):
        assert registry.first_waiting(JOB) is run
        registry.take_waiting(run)
    assert registry.first_waiting(JOB) is None


def test_forget_withdraws_a_run_wherever_it_is() -> None:
    registry = RunRegistry(most=1_000)
    waiting, other = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for run in (waiting, other):
        registry.arm(run)
        registry.wait(run)
    registry.forget([waiting])
    assert waiting.phase is Phase.WITHDRAWN
    assert registry.armed_of(JOB) == (other,)
    assert registry.first_waiting(JOB) is other


def test_each_of_very_many_runs_is_found_by_its_key() -> None:
    registry = RunRegistry(most=1_000)
    runs = [armed(due_us, job_id=JOB) for due_us in range(1, 6)]
    for run in runs:
        registry.arm(run)
    again = armed(3, job_id=JOB)
    registry.arm(again)  # in place of the one with its key
    assert registry.armed_count == 5
    assert not registry.disarm(runs[2])
    assert registry.is_armed(again.key)
    assert registry.disarm(again)
    assert not registry.knows(again.key)
    left = {run.key for run in runs if run is not runs[2]}
    assert set(registry.attempted()) == left
    for run in (*runs[:2], *runs[3:]):
        assert registry.disarm(run)
    assert registry.armed_count == 0
    assert not registry.has_any(JOB)


def test_disarming_twice_counts_once() -> None:
    registry = RunRegistry(most=1_000)
    run = armed(1)
    registry.arm(run)
    assert registry.disarm(run)
    assert not registry.disarm(run)
    assert registry.armed_count == 0


def test_live_runs_of_other_shards_are_known() -> None:
    registry = RunRegistry(most=1_000)
    key = RunKey(JOB, 5)
    registry.revive(key, 7)
    assert registry.knows(key)
    assert not registry.is_idle(JOB)
    assert not registry.has_attempt(key)
    assert list(registry.job_ids()) == [JOB]
    assert registry.live_count == 1


def test_the_end_of_an_old_attempt_does_not_end_a_later_one() -> None:
    registry = RunRegistry(most=1_000)
    key = RunKey(JOB, 5)
    registry.revive(key, 7)
    registry.revive(key, 8)
    registry.end(key, 7)
    (live,) = registry.live_of(JOB)
    assert live.token == 8
    registry.end(key, 8)
    assert not registry.has_any(JOB)
    registry.revive(key, 8)
    registry.end(key, 9)  # which was armed, and is not sent after all
    assert not registry.has_any(JOB)
    registry.revive(key, 8)
    registry.end(key)  # whatever its attempt
    assert not registry.has_any(JOB)


def test_a_run_on_its_worker_has_no_attempt_on_this_shard() -> None:
    registry = RunRegistry(most=1_000)
    waiting, sent, accepted = armed(1), armed(2), armed(3)
    for run in (waiting, sent, accepted):
        registry.arm(run)
    registry.begin(sent)
    registry.begin(accepted)
    registry.pause(accepted.key)
    attempted = list(registry.attempted())
    assert attempted == [waiting.key, sent.key]
    assert registry.live_count == 2
    registry.end(sent.key)
    registry.end(sent.key)
    assert registry.live_count == 1


def test_a_live_run_that_is_armed_again_is_held_before_those_that_wait_for_it() -> None:
    registry = RunRegistry(most=1_000)
    run, later = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for each in (run, later):
        registry.arm(each)
    registry.begin(run)
    registry.wait(later)
    anew = armed(1, job_id=JOB)
    assert registry.arm_again(anew)
    assert anew.phase is Phase.HELD
    assert not registry.is_live(run.key)
    assert registry.must_wait(later)
    registry.release(anew)
    assert not registry.must_wait(later)


def test_a_run_that_is_armed_again_and_has_no_other_beside_it_is_not_held() -> None:
    registry = RunRegistry(most=1_000)
    run = armed(1, job_id=JOB)
    registry.arm(run)
    assert registry.begin_alone(run)
    anew = armed(1, job_id=JOB)
    assert not registry.arm_again(anew)
    assert anew.phase is Phase.ARMED


async def test_the_runs_that_wait_for_an_outcome_are_freed_however_that_ends() -> None:
    registry = RunRegistry(most=1_000)
    run, later = armed(1, job_id=JOB), armed(2, job_id=JOB)
    for each in (run, later):
        registry.arm(each)
    registry.begin(run)
    assert registry.count_settling(JOB) == 0
    run.enter(Phase.SENT)
    run.enter(Phase.SETTLING)
    registry.wait(later)
    assert registry.count_settling(JOB) == 1
    registry.unsettle(run)
    assert registry.count_settling(JOB) == 0
    assert await registry.freed.take() == [JOB]
    run.enter(Phase.SETTLING)
    registry.pause(run.key)
    assert registry.count_settling(JOB) == 0
    assert await registry.freed.take() == [JOB]
