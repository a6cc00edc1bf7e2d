from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.partition import PARTITIONS, partition_of, placement

fleets = st.lists(st.uuids(), min_size=1, max_size=12, unique=True)


@given(st.uuids())
def test_every_job_has_a_partition(job_id: UUID) -> None:
    assert 0 <= partition_of(job_id) < PARTITIONS


@given(fleets, st.uuids())
def test_a_shard_that_joins_takes_its_share_and_moves_nothing_else(
    fleet: list[UUID], joining: UUID
) -> None:
    before = placement(fleet)
    after = placement([*fleet, joining])
    moved = [partition for partition in before if before[partition] != after[partition]]
    assert all(after[partition] == joining for partition in moved)
    if joining not in fleet:
        # About 1/(N+1); six standard deviations of a binomial are never seen.
        share = 1 / (len(fleet) + 1)
        deviation = (PARTITIONS * share * (1 - share)) ** 0.5
        assert abs(len(moved) - PARTITIONS * share) < 6 * deviation


@given(fleets, st.data())
def test_a_shard_that_leaves_moves_only_what_it_had(fleet: list[UUID], data: st.DataObject) -> None:
    leaving = data.draw(st.sampled_from(fleet))
    before = placement(fleet)
    after = placement(shard_id for shard_id in fleet if shard_id != leaving)
    for partition, owner in after.items():
        assert owner == before[partition] or before[partition] == leaving
