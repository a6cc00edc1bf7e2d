"""Runs whose end was decided without an attempt, until it is written."""

from tests.unit.shard.armed_runs import armed

from wheelsched.core.partition import partition_of
from wheelsched.shard.runs.registry import RunRegistry
from wheelsched.shard.runs.rulings import Rulings


def test_a_run_that_was_ruled_twice_is_known_until_both_rulings_are_written() -> None:
    registry, key = RunRegistry(most=1_000), armed(1).key
    rulings = registry.rulings
    rulings.add(key)
    rulings.add(key)
    rulings.postpone_retry(key)
    assert not rulings.written(key)
    assert key in rulings
    assert rulings.any_in([partition_of(key.job_id)])
    assert rulings.written(key)  # there is a retry to look for
    assert not registry.knows(key)
    assert key not in rulings
    assert not rulings.any_in([partition_of(key.job_id)])


def test_an_open_claim_learns_of_its_runs_that_are_ruled() -> None:
    rulings, ours, other = Rulings(), armed(1).key, armed(2).key
    with rulings.claiming([ours]) as ruled:
        assert not ruled
        rulings.add(other)
        rulings.add(ours)
        assert ruled == {ours}
    assert not rulings.claims
