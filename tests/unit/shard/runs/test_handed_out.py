"""Runs in the hands of workers, and the ends of their delivery leases."""

from tests.unit.shard.armed_runs import armed

from wheelsched.ports.work import DELIVERY_LEASE_US, Attempted
from wheelsched.shard.runs.handed_out import HandedOutRuns

NOW = 1_000


def test_a_delivery_lease_ends_after_five_seconds() -> None:
    handed_out, runs = HandedOutRuns(), [armed(1), armed(1)]
    handed_out.add(runs, NOW)
    assert handed_out.expired(NOW + DELIVERY_LEASE_US - 1) == []
    assert handed_out.expired(NOW + DELIVERY_LEASE_US) == runs
    assert handed_out.expired(NOW + DELIVERY_LEASE_US) == []
    assert len(handed_out) == 2


def test_an_attempt_is_taken_once_and_only_with_its_token() -> None:
    handed_out, run = HandedOutRuns(), armed(1)
    handed_out.add([run], NOW)
    assert handed_out.take(Attempted(run.key, run.token + 1)) is None
    assert handed_out.take(Attempted(run.key, run.token)) is run
    assert handed_out.take(Attempted(run.key, run.token)) is None
    assert handed_out.expired(NOW + DELIVERY_LEASE_US) == []


def test_a_run_that_is_handed_out_again_has_a_new_lease() -> None:
    handed_out, run = HandedOutRuns(), armed(1)
    handed_out.add([run], NOW)
    assert handed_out.discard([run]) == [run]
    assert handed_out.discard([run]) == []
    handed_out.add([run], NOW + 10)
    assert handed_out.expired(NOW + DELIVERY_LEASE_US) == []
    assert handed_out.expired(NOW + 10 + DELIVERY_LEASE_US) == [run]


def test_a_run_is_adopted_until_it_is_taken() -> None:
    handed_out, run = HandedOutRuns(), armed(1)
    handed_out.adopt(run, NOW)
    assert handed_out.is_adopted(run)
    assert handed_out.expired(NOW + DELIVERY_LEASE_US) == [run]
    handed_out.discard([run])
    handed_out.add([run], NOW)
    assert not handed_out.is_adopted(run)
