from array import array
from contextlib import ExitStack
from uuid import UUID

from wheelsched.ports import Horizon
from wheelsched.shard.loading.upcoming import DueTimes
from wheelsched.values.duration import SECOND

NOW = 1_800_000_000 * SECOND
IDS = [UUID(int=number) for number in range(1, 6)]


def horizon(*dues_us: int) -> Horizon:
    job_ids = b"".join(job_id.bytes for job_id in IDS[: len(dues_us)])
    return Horizon(job_ids, array("q", dues_us), array("q", [1] * len(dues_us)))


def test_due_times_are_taken_exactly_as_they_were_put() -> None:
    due_times = DueTimes(NOW)
    due_times.put_many(horizon(NOW + 7, NOW + 3 * SECOND + 1), 0, 2)
    assert due_times.take(NOW + SECOND, 10) == [(IDS[0], NOW + 7)]
    assert due_times.take(NOW + 10 * SECOND, 10) == [(IDS[1], NOW + 3 * SECOND + 1)]
    assert len(due_times) == 0


def test_overdue_times_come_at_once_and_first() -> None:
    due_times = DueTimes(NOW)
    due_times.move(IDS[0], NOW + SECOND)
    assert due_times.take(NOW + SECOND // 2, 10) == []
    due_times.move(IDS[1], NOW - 60 * SECOND)
    next_us = due_times.next_us()
    assert next_us is not None
    assert next_us <= NOW + SECOND
    assert due_times.take(NOW + 2 * SECOND, 1) == [(IDS[1], NOW - 60 * SECOND)]


def test_an_entry_before_the_reached_time_comes_at_once() -> None:
    due_times = DueTimes(NOW)
    due_times.put_many(horizon(NOW + 30 * SECOND, NOW + 30 * SECOND), 0, 2)
    assert len(due_times.take(NOW + 60 * SECOND, 1)) == 1
    assert due_times.next_us() == 0
    assert len(due_times.take(NOW + SECOND, 1)) == 1
    due_times.move(IDS[2], NOW + 10 * SECOND)
    assert due_times.next_us() == 0
    assert due_times.take(NOW + SECOND, 10) == [(IDS[2], NOW + 10 * SECOND)]
    due_times.move(IDS[3], NOW + 90 * SECOND)
    assert due_times.next_us() > NOW + 60 * SECOND  # type: ignore[operator]  # not None
    assert due_times.take(NOW + 2 * SECOND, 10) == []


def test_a_job_has_at_most_one_due_time() -> None:
    due_times = DueTimes(NOW)
    due_times.move(IDS[0], NOW + SECOND)
    due_times.move(IDS[0], NOW + 2 * SECOND)
    due_times.move(IDS[1], NOW + SECOND)
    due_times.move(IDS[1], None)
    assert due_times.take(NOW + 9 * SECOND, 10) == [(IDS[0], NOW + 2 * SECOND)]


def test_a_move_during_a_load_wins() -> None:
    due_times = DueTimes(NOW)
    with due_times.loading():
        due_times.move(IDS[0], NOW + 60 * SECOND)
        due_times.move(IDS[1], None)
        due_times.put_many(horizon(NOW + 1, NOW + 2, NOW + 3), 0, 3)
    assert due_times.take(NOW + SECOND, 10) == [(IDS[2], NOW + 3)]
    assert due_times.take(NOW + 99 * SECOND, 10) == [(IDS[0], NOW + 60 * SECOND)]


def test_a_job_armed_during_a_load_is_not_taken_again() -> None:
    due_times = DueTimes(NOW)
    with due_times.loading():
        due_times.put_many(horizon(NOW + SECOND, NOW + SECOND, NOW + SECOND), 0, 3)
        assert len(due_times.take(NOW + 2 * SECOND, 10)) == 3
        due_times.move(IDS[0], NOW + 61 * SECOND)
        due_times.move(IDS[1], None)
        due_times.put_many(horizon(NOW + SECOND, NOW + SECOND, NOW + SECOND), 0, 3)
        assert due_times.take(NOW + 2 * SECOND, 10) == [(IDS[2], NOW + SECOND)]
    assert due_times.take(NOW + 90 * SECOND, 10) == [(IDS[0], NOW + 61 * SECOND)]


def test_two_loads_may_overlap() -> None:
    due_times = DueTimes(NOW)
    with due_times.loading():
        with due_times.loading():
            due_times.move(IDS[0], NOW + 60 * SECOND)
            due_times.put_many(horizon(NOW + 1, NOW + 2), 0, 2)
        due_times.put_many(horizon(NOW + 1, NOW + 2, NOW + 3), 0, 3)
    assert due_times.take(NOW + SECOND, 10) == [(IDS[1], NOW + 2), (IDS[2], NOW + 3)]
    assert due_times.take(NOW + 99 * SECOND, 10) == [(IDS[0], NOW + 60 * SECOND)]


def test_due_times_work_after_the_clock_steps_back() -> None:
    due_times = DueTimes(NOW)
    due_times.take(NOW + 60 * SECOND, 10)
    due_times.anchor(NOW)
    due_times.move(IDS[0], NOW + SECOND)
    assert due_times.take(NOW + 2 * SECOND, 10) == [(IDS[0], NOW + SECOND)]


def test_a_forecast_counts_second_by_second() -> None:
    due_times = DueTimes(NOW)
    due_times.put_many(horizon(NOW, NOW + 1, NOW + SECOND, NOW + 2 * SECOND - 1, NOW + 9), 0, 5)
    assert due_times.forecast(NOW, 3) == [3, 2, 0]


def test_a_move_during_a_load_replaces_the_loaded_due_time() -> None:
    due_times = DueTimes(NOW)
    with due_times.loading() as moved:
        due_times.move(IDS[0], NOW + 5 * SECOND)
        due_times.move(IDS[1], None)
        due_times.put(IDS[0], NOW + SECOND)
        due_times.put_many(horizon(NOW + SECOND, NOW + SECOND, NOW + SECOND), 1, 3)
        assert set(moved) == {IDS[0], IDS[1]}
    assert due_times.take(NOW + 9 * SECOND, 10) == [
        (IDS[2], NOW + SECOND),
        (IDS[0], NOW + 5 * SECOND),
    ]


def test_the_end_of_one_load_does_not_move_jobs_of_another() -> None:
    """The other load may have read later, and may know a newer change."""
    due_times = DueTimes(NOW)
    with ExitStack() as first:
        first.enter_context(due_times.loading())
        due_times.move(IDS[0], NOW + 5 * SECOND)
        with due_times.loading() as moved:
            first.close()
            assert not moved
