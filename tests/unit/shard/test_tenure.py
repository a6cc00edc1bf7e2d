from uuid import UUID, uuid4

import pytest

from wheelsched.core.lease import LeaseTerms
from wheelsched.core.partition import partition_of
from wheelsched.core.token import split_token
from wheelsched.ports import Lease, Ownership
from wheelsched.shard.tenure import Tenure
from wheelsched.testing import VirtualClock

TERMS = LeaseTerms()
SHARD = uuid4()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(10**12)


@pytest.fixture
def tenure(clock: VirtualClock) -> Tenure:
    return Tenure(Lease(SHARD, 1), TERMS, clock)


async def test_trust_begins_with_a_renewal_and_passes(clock: VirtualClock, tenure: Tenure) -> None:
    assert tenure.trust_left_us == 0
    tenure.renewed(tenure.now_us())
    assert tenure.trust_left_us == TERMS.ttl_us - TERMS.margin_us
    await clock.advance((TERMS.ttl_us - TERMS.margin_us) * 1_000)
    assert not tenure.is_trusted
    assert tenure.trust_left_us == 0


def test_a_lost_lease_is_never_trusted_again(tenure: Tenure) -> None:
    tenure.renewed(tenure.now_us())
    tenure.lose()
    tenure.renewed(tenure.now_us())
    assert not tenure.is_trusted


def job_in(partition: int) -> UUID:
    return next(job_id for job_id in iter(uuid4, None) if partition_of(job_id) == partition)


def test_a_partition_may_be_armed_when_its_past_is_known(tenure: Tenure) -> None:
    job_id = job_in(7)
    assert not tenure.may_arm(job_id)
    assert tenure.gain([Ownership(7, SHARD, 3)]) == [7]
    assert not tenure.may_arm(job_id)
    tenure.ready([7])
    assert tenure.may_arm(job_id)
    tenure.drop([7])
    assert not tenure.may_arm(job_id)


def test_tokens_grow_within_the_epoch_and_a_replayed_acquisition_begins_no_new_one(
    tenure: Tenure,
) -> None:
    job_id = job_in(7)
    tenure.gain([Ownership(7, SHARD, 3)])
    first = tenure.next_token(job_id)
    assert tenure.gain([Ownership(7, SHARD, 3)]) == []
    second = tenure.next_token(job_id)
    assert split_token(first).epoch == split_token(second).epoch == 3
    assert second > first


def test_readiness_of_a_partition_that_went_meanwhile_is_nothing(tenure: Tenure) -> None:
    tenure.ready([9])
    assert not tenure.holds(9)
