"""Orphaned runs: each is taken once, with all others of its job."""

from uuid import UUID

import pytest

from wheelsched.core.model import RunKey
from wheelsched.ports import Retry
from wheelsched.shard.recovery.orphans import OrphanedJob, Orphans
from wheelsched.testing import VirtualClock

FIRST, SECOND, THIRD = (UUID(int=number) for number in range(3))


def keys_of(jobs: list[OrphanedJob]) -> list[RunKey]:
    return [key for job in jobs for key in job.keys]


@pytest.fixture
def orphans() -> Orphans:
    """The second job has the earliest run, and another."""
    orphans = Orphans()
    orphans.add(RunKey(FIRST, 20), 1)
    orphans.add(RunKey(SECOND, 10), 2)
    orphans.add(RunKey(SECOND, 30), 2)
    orphans.add(RunKey(THIRD, 40), 2)
    for job_id in (FIRST, SECOND, THIRD):
        orphans.enqueue(job_id)
    return orphans


def test_the_earliest_job_comes_first_with_all_of_its_runs(orphans: Orphans) -> None:
    assert keys_of(orphans.take_earliest(1)) == [RunKey(SECOND, 10), RunKey(SECOND, 30)]
    assert keys_of(orphans.take_earliest(2)) == [RunKey(FIRST, 20), RunKey(THIRD, 40)]
    assert orphans.take_earliest(1) == []
    assert not orphans.has_any.is_set()
    assert len(orphans) == 4  # until they were adopted


def test_an_urgent_job_comes_first_and_once(orphans: Orphans) -> None:
    orphans.prioritize(THIRD, 50)
    orphans.prioritize(THIRD, 50)
    assert keys_of(orphans.take_urgent(9)) == [RunKey(THIRD, 40)]
    assert not orphans.has_urgent.is_set()
    assert orphans.take_urgent(9) == []
    assert RunKey(THIRD, 40) not in keys_of(orphans.take_earliest(9))


def test_reminders_of_a_job_are_returned_after_its_adoption(orphans: Orphans) -> None:
    (taken,) = orphans.take_earliest(1)
    retry = Retry(RunKey(SECOND, 10), 99)
    orphans.prioritize(SECOND, 50)  # while it is being adopted
    orphans.prioritize(SECOND, retry)
    assert not orphans.has_urgent.is_set()
    assert set(orphans.adopted(taken)) == {50, retry}
    assert set(orphans) == {RunKey(FIRST, 20), RunKey(THIRD, 40)}
    assert SECOND not in orphans.jobs


async def test_jobs_of_released_partitions_are_forgotten(orphans: Orphans) -> None:
    orphans.prioritize(THIRD, 50)
    await orphans.forget(VirtualClock(), {2})
    assert set(orphans) == {RunKey(FIRST, 20)}
    assert orphans.take_urgent(9) == []
    assert keys_of(orphans.take_earliest(9)) == [RunKey(FIRST, 20)]


async def test_a_job_that_is_released_and_gained_during_its_adoption_stays_an_orphan(
    orphans: Orphans,
) -> None:
    (taken,) = orphans.take_earliest(1)
    await orphans.forget(VirtualClock(), {2})
    orphans.add(RunKey(SECOND, 10), 2)
    orphans.enqueue(SECOND)
    orphans.prioritize(SECOND, 50)
    assert not orphans.adopted(taken)
    (again,) = orphans.take_urgent(1)
    assert list(orphans.adopted(again)) == [50]


async def test_a_job_that_is_released_and_gained_again_is_taken_whole(orphans: Orphans) -> None:
    orphans.prioritize(SECOND, 50)
    await orphans.forget(VirtualClock(), {2})
    orphans.add(RunKey(SECOND, 10), 2)
    assert orphans.take_urgent(9) == []
    assert keys_of(orphans.take_earliest(9)) == [RunKey(FIRST, 20)]
    orphans.add(RunKey(SECOND, 30), 2)
    orphans.enqueue(SECOND)
    assert keys_of(orphans.take_earliest(9)) == [RunKey(SECOND, 10), RunKey(SECOND, 30)]


def test_a_known_orphan_is_not_added_again(orphans: Orphans) -> None:
    orphans.add(RunKey(FIRST, 20), 1)
    assert len(orphans) == 4
    assert keys_of(orphans.take_earliest(9)).count(RunKey(FIRST, 20)) == 1
