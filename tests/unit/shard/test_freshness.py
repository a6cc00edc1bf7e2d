from wheelsched.core.duration import SECOND
from wheelsched.shard.freshness import Freshness


def test_nothing_is_covered_before_the_first_round_trip() -> None:
    assert not Freshness().covers(10 * SECOND)


def test_a_round_trip_covers_what_is_due_a_second_later() -> None:
    freshness = Freshness()
    freshness.confirmed(10 * SECOND, error_us=0)
    assert freshness.covers(11 * SECOND)
    assert not freshness.covers(11 * SECOND + 1)


def test_the_error_of_the_clock_is_given_away() -> None:
    freshness = Freshness()
    freshness.confirmed(10 * SECOND, error_us=5)
    assert freshness.covers(11 * SECOND - 5)
    assert not freshness.covers(11 * SECOND - 4)


def test_a_lost_listener_covers_nothing() -> None:
    freshness = Freshness()
    freshness.confirmed(10 * SECOND, error_us=0)
    freshness.lost()
    assert not freshness.covers(5 * SECOND)
