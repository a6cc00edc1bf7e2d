"""What a database has forgotten is part of its history, and counts with its first end."""

from msgspec.structs import replace
from tests.checker.quiet import PARTITION, SHARD, START, at, quiet, run
from tests.checker.records import Ownership
from tests.ha.world import Lost, with_lost

LATER = Ownership(partition=PARTITION, epoch=2, shard="second", from_us=at(30))


def test_runs_that_only_the_lost_state_had_are_forgotten() -> None:
    only_there = run(33)
    history = with_lost(quiet(), [Lost(at(40), [], [run(30), only_there])])
    assert history.forgotten == (only_there,)


def test_whoever_had_given_up_a_partition_does_not_get_it_back() -> None:
    known = quiet().ownerships[0]
    taken = replace(known, until_us=at(30), ended="taken_over")
    (first, second) = with_lost(quiet(), [Lost(at(40), [taken, LATER], [])]).ownerships
    assert first == taken
    assert second == replace(LATER, until_us=at(40), ended="left")


def test_an_end_that_only_the_new_state_knows_stays() -> None:
    known = Ownership(partition=PARTITION, epoch=1, shard=SHARD, from_us=START)
    ended = replace(quiet(), ownerships=(replace(known, until_us=at(50), ended="left"),))
    assert with_lost(ended, [Lost(at(40), [known], [])]).ownerships == ended.ownerships
