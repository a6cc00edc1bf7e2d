from uuid import UUID, uuid4

import pytest

from wheelsched.core.lease import LeaseTerms
from wheelsched.core.partition import partition_of
from wheelsched.core.token import split_token
from wheelsched.errors import DatabaseWentBack
from wheelsched.ports import Lease, PartitionOwner, Renewal, ShardView, Survey
from wheelsched.shard.ownership.ownership import OPEN_US, Ownership, Past
from wheelsched.testing import VirtualClock

TERMS = LeaseTerms()
SHARD = uuid4()
OTHER = uuid4()
SERVER_US = 77


def renew(ownership: Ownership, server_us: int = SERVER_US, **changes: int) -> bool:
    """Confirms a renewal, as the database should, but for the changes."""
    fields = {"renewals": ownership.renewals + 1, "fence": ownership.lease.fence} | changes
    renewal = Renewal(**fields, server_started_us=server_us)
    return ownership.renewed(ownership.now_us(), ownership.lease, renewal)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(10**12)


@pytest.fixture
def ownership(clock: VirtualClock) -> Ownership:
    return Ownership(Lease(SHARD, 1), TERMS, clock)


async def test_trust_begins_with_a_renewal_and_expires(
    clock: VirtualClock, ownership: Ownership
) -> None:
    assert ownership.trust_left_us == 0
    renew(ownership)
    assert ownership.trust_left_us == TERMS.ttl_us - TERMS.margin_us
    await clock.advance((TERMS.ttl_us - TERMS.margin_us) * 1_000)
    assert not ownership.is_trusted
    assert ownership.trust_left_us == 0


def test_a_lost_lease_is_never_trusted_again(ownership: Ownership) -> None:
    renew(ownership)
    ownership.lose()
    renew(ownership)
    assert not ownership.is_trusted


def job_in(partition: int) -> UUID:
    return next(job_id for job_id in iter(uuid4, None) if partition_of(job_id) == partition)


def test_a_partition_may_be_armed_when_its_unfinished_runs_are_known(ownership: Ownership) -> None:
    job_id = job_in(7)
    assert not ownership.may_arm(job_id)
    assert ownership.gain([PartitionOwner(7, SHARD, 3)]) == [7]
    assert not ownership.may_arm(job_id)
    ownership.ready([7])
    assert ownership.may_arm(job_id)
    ownership.drop([7])
    assert not ownership.may_arm(job_id)


def test_tokens_grow_and_a_repeated_acquisition_does_not_reset_them(
    ownership: Ownership,
) -> None:
    job_id = job_in(7)
    ownership.gain([PartitionOwner(7, SHARD, 3)])
    first = ownership.next_token(job_id)
    assert ownership.gain([PartitionOwner(7, SHARD, 3)]) == []
    second = ownership.next_token(job_id)
    assert split_token(first).epoch == split_token(second).epoch == 3
    assert second > first


def test_a_dropped_partition_does_not_become_ready(ownership: Ownership) -> None:
    ownership.ready([9])
    assert not ownership.holds(9)


class Line:
    """The lease connection."""

    def __init__(self) -> None:
        self.is_open = True
        self.looks = 0

    def is_connected(self) -> bool:
        self.looks += 1
        return self.is_open


async def test_a_lease_is_not_trusted_while_its_connection_is_closed(clock: VirtualClock) -> None:
    line = Line()
    ownership = Ownership(Lease(SHARD, 1), TERMS, clock, line.is_connected)
    renew(ownership)
    trusted = [ownership.is_trusted]
    for line.is_open in (False, True):
        await clock.advance(OPEN_US * 1_000)
        trusted.append(ownership.is_trusted)
        assert (ownership.trust_left_us > 0) is line.is_open
    assert trusted == [True, False, True]


async def test_a_shard_looks_at_its_connection_once_in_a_while_and_after_a_freeze(
    clock: VirtualClock,
) -> None:
    line = Line()
    ownership = Ownership(Lease(SHARD, 1), TERMS, clock, line.is_connected)
    renew(ownership)
    assert all(ownership.is_trusted for _ in range(100))
    assert line.looks == 1
    line.is_open = False
    await clock.advance(3_000_000)
    assert not ownership.is_trusted


@pytest.mark.parametrize("changes", [{"renewals": 2}, {"renewals": 1}, {"fence": 3}])
def test_a_renewal_from_the_past_ends_the_lease(
    changes: dict[str, int], clock: VirtualClock
) -> None:
    ownership = Ownership(Lease(SHARD, 4), TERMS, clock)
    renew(ownership)
    renew(ownership)
    with pytest.raises(DatabaseWentBack):
        renew(ownership, **changes)
    assert not ownership.is_trusted


def test_a_fence_that_was_raised_after_the_renewal_was_sent_is_not_from_the_past(
    ownership: Ownership,
) -> None:
    sent = ownership.lease
    ownership.lease = Lease(SHARD, 2)
    ownership.renewed(ownership.now_us(), sent, Renewal(1, 1))
    assert ownership.is_trusted


def test_another_server_is_trusted_after_the_shard_has_started_over(ownership: Ownership) -> None:
    servers = (SERVER_US, SERVER_US, SERVER_US + 1, SERVER_US + 1)
    steps = [(renew(ownership, server_us), ownership.is_trusted) for server_us in servers]
    assert steps == [(False, True), (False, True), (True, False), (False, False)]
    assert ownership.trust_left_us == 0
    ownership.started_over([])
    assert ownership.is_trusted


def test_the_epochs_of_a_process_outlive_its_leases(clock: VirtualClock) -> None:
    past = Past()
    first = Ownership(Lease(SHARD, 1), TERMS, clock, past=past)
    first.gain([PartitionOwner(7, SHARD, 3)])
    first.drop([7])
    second = Ownership(Lease(OTHER, 1), TERMS, clock, past=past)
    second.gain([PartitionOwner(8, OTHER, 5)])
    assert second.past.epochs == {7: 3, 8: 5}


def survey_of(*partitions: PartitionOwner, shard_id: UUID = SHARD) -> Survey:
    shard = ShardView(
        shard_id=shard_id, renewals=1, is_expired=False, is_leaving=False, started_at_us=0
    )
    return Survey((shard,), partitions)


@pytest.mark.parametrize("found", [(OTHER, 3), (None, 3), (SHARD, 2), (SHARD, 4)])
def test_a_held_partition_that_is_not_ours_means_that_the_database_went_back(
    found: tuple[UUID | None, int], ownership: Ownership
) -> None:
    renew(ownership)
    ownership.gain([PartitionOwner(7, SHARD, 3), PartitionOwner(8, SHARD, 3)])
    held = ownership.epochs()
    ownership.check_survey(held, survey_of(PartitionOwner(7, SHARD, 3)))
    with pytest.raises(DatabaseWentBack):
        ownership.check_survey(held, survey_of(PartitionOwner(7, *found)))
    assert not ownership.is_trusted


def test_a_survey_says_nothing_of_partitions_that_changed_hands_meanwhile(
    ownership: Ownership,
) -> None:
    """Gained, dropped, or dropped and gained again while the survey was under way."""
    ownership.gain([PartitionOwner(7, SHARD, 3), PartitionOwner(8, SHARD, 3)])
    held = ownership.epochs()
    ownership.drop([7, 8])
    ownership.gain([PartitionOwner(8, SHARD, 5), PartitionOwner(9, SHARD, 3)])
    stale = [PartitionOwner(partition, OTHER, 4) for partition in (7, 8, 9)]
    ownership.check_survey(held, survey_of(*stale))


def test_a_survey_without_the_lease_says_nothing_of_its_partitions(ownership: Ownership) -> None:
    """It was taken over: the next renewal finds out."""
    ownership.gain([PartitionOwner(7, SHARD, 3)])
    taken = survey_of(PartitionOwner(7, OTHER, 4), shard_id=OTHER)
    ownership.check_survey(ownership.epochs(), taken)
