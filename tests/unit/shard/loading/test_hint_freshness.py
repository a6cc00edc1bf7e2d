from wheelsched.shard.loading.hint_freshness import HintFreshness
from wheelsched.values.duration import SECOND


def test_nothing_is_covered_before_the_first_round_trip() -> None:
    assert not HintFreshness().covers(10 * SECOND)


def test_a_round_trip_covers_runs_due_a_second_later() -> None:
    hint_freshness = HintFreshness()
    hint_freshness.confirmed(10 * SECOND, error_us=0)
    assert hint_freshness.covers(11 * SECOND)
    assert not hint_freshness.covers(11 * SECOND + 1)


def test_the_clock_error_is_subtracted() -> None:
    hint_freshness = HintFreshness()
    hint_freshness.confirmed(10 * SECOND, error_us=5)
    assert hint_freshness.covers(11 * SECOND - 5)
    assert not hint_freshness.covers(11 * SECOND - 4)


def test_a_lost_listener_covers_nothing() -> None:
    hint_freshness = HintFreshness()
    hint_freshness.confirmed(10 * SECOND, error_us=0)
    hint_freshness.lost()
    assert not hint_freshness.covers(5 * SECOND)
