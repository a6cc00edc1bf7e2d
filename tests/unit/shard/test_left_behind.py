"""Runs that were left behind: each is given once, with all others of its job."""

from uuid import UUID

import pytest

from wheelsched.core.model import RunKey
from wheelsched.ports import Retry
from wheelsched.shard.left_behind import LeftBehind, LeftJob
from wheelsched.testing import VirtualClock

FIRST, SECOND, THIRD = (UUID(int=number) for number in range(3))


def keys_of(jobs: list[LeftJob]) -> list[RunKey]:
    return [key for job in jobs for key in job.keys]


@pytest.fixture
def left() -> LeftBehind:
    """The second job has the earliest run, and another."""
    left = LeftBehind()
    left.add(RunKey(FIRST, 20), 1)
    left.add(RunKey(SECOND, 10), 2)
    left.add(RunKey(SECOND, 30), 2)
    left.add(RunKey(THIRD, 40), 2)
    for job_id in (FIRST, SECOND, THIRD):
        left.line_up(job_id)
    return left


def test_the_earliest_come_first_and_jobs_whole(left: LeftBehind) -> None:
    assert keys_of(left.take_earliest(1)) == [RunKey(SECOND, 10), RunKey(SECOND, 30)]
    assert keys_of(left.take_earliest(2)) == [RunKey(FIRST, 20), RunKey(THIRD, 40)]
    assert left.take_earliest(1) == []
    assert not left.has_any.is_set()
    assert len(left) == 4  # until they were taken up


def test_a_wanted_job_comes_before_the_others_and_once(left: LeftBehind) -> None:
    assert left.want(THIRD, 50)
    assert left.want(THIRD, 50)
    assert keys_of(left.take_wanted(9)) == [RunKey(THIRD, 40)]
    assert not left.has_wanted.is_set()
    assert left.take_wanted(9) == []
    assert RunKey(THIRD, 40) not in keys_of(left.take_earliest(9))


def test_whoever_wanted_a_job_is_reminded_when_it_was_taken_up(left: LeftBehind) -> None:
    (taken,) = left.take_earliest(1)
    retry = Retry(RunKey(SECOND, 10), 99)
    assert left.want(SECOND, 50)  # while it is being taken up
    assert left.want(SECOND, retry)
    assert not left.has_wanted.is_set()
    assert set(left.taken_up(taken)) == {50, retry}
    assert not left.want(SECOND, 60)
    assert set(left) == {RunKey(FIRST, 20), RunKey(THIRD, 40)}
    assert not left.has_job(SECOND)


async def test_what_is_given_up_is_forgotten(left: LeftBehind) -> None:
    left.want(THIRD, 50)
    await left.forget(VirtualClock(), {2})
    assert set(left) == {RunKey(FIRST, 20)}
    assert left.take_wanted(9) == []
    assert keys_of(left.take_earliest(9)) == [RunKey(FIRST, 20)]


async def test_what_is_given_up_while_it_is_taken_up_and_gained_again_is_left_behind(
    left: LeftBehind,
) -> None:
    (taken,) = left.take_earliest(1)
    await left.forget(VirtualClock(), {2})
    left.add(RunKey(SECOND, 10), 2)
    left.line_up(SECOND)
    assert left.want(SECOND, 50)
    assert not left.taken_up(taken)
    (again,) = left.take_wanted(1)
    assert list(left.taken_up(again)) == [50]


async def test_what_is_given_up_and_gained_again_is_taken_whole(left: LeftBehind) -> None:
    left.want(SECOND, 50)
    await left.forget(VirtualClock(), {2})
    left.add(RunKey(SECOND, 10), 2)
    assert left.take_wanted(9) == []
    assert keys_of(left.take_earliest(9)) == [RunKey(FIRST, 20)]
    left.add(RunKey(SECOND, 30), 2)
    left.line_up(SECOND)
    assert keys_of(left.take_earliest(9)) == [RunKey(SECOND, 10), RunKey(SECOND, 30)]


def test_a_run_that_is_known_is_not_noted_again(left: LeftBehind) -> None:
    left.add(RunKey(FIRST, 20), 1)
    assert len(left) == 4
    assert keys_of(left.take_earliest(9)).count(RunKey(FIRST, 20)) == 1
