from wheelsched.config import LeadConfig
from wheelsched.shard.arming.lead import ArmingRate, look_ahead
from wheelsched.values.duration import SECOND

CONFIG = LeadConfig(least_us=SECOND, headroom=2.0, haste=1.0, first_rate=10_000.0)


def lead_s(forecast: list[int], rate: float = 10_000.0) -> float:
    return look_ahead(forecast, rate, CONFIG).us / SECOND


def test_the_lead_is_minimal_with_nothing_ahead() -> None:
    assert lead_s([]) == 1
    assert lead_s([0] * 60) == 1


def test_a_distant_hot_second_does_not_change_the_lead() -> None:
    assert lead_s([0] * 50 + [100_000] + [0] * 9) == 1  # 20 s of work, 49 s to go


def test_a_hot_second_starts_when_its_work_fills_the_remaining_time() -> None:
    # 500,000 at 10,000 a second with headroom 2 take 100 s: it is begun as soon as it is seen.
    assert lead_s([0] * 59 + [500_000]) == 60
    # 100,000 take 20 s, and want to be done a second before their own.
    assert lead_s([0] * 21 + [100_000] + [0] * 38) == 22
    assert lead_s([0] * 22 + [100_000] + [0] * 37) == 1


def test_two_hot_seconds_in_a_row_start_early_enough_for_both() -> None:
    # Each takes 10 s: the second must wait for nobody, so the first is begun 20 s ahead.
    assert lead_s([0] * 15 + [50_000, 50_000] + [0] * 43) == 16
    assert lead_s([0] * 15 + [0, 50_000] + [0] * 43) == 1


def test_a_steady_flow_is_armed_as_it_comes() -> None:
    assert lead_s([6_000] * 60) == 1
    assert lead_s([6_000] * 30 + [7_000] + [6_000] * 29) == 1
    assert lead_s([6_100, 5_900] * 30) == 1
    assert not look_ahead([6_000] * 60, 10_000.0, CONFIG).is_hasty
    assert lead_s([20_000] * 60) == 31  # twice as fast as it can be armed


def test_a_flow_is_recognized_from_the_near_seconds() -> None:
    assert lead_s([6_000] * 40 + [0] * 80) == 1


def test_a_hot_second_in_a_steady_flow_starts_early_enough_for_both() -> None:
    # 100,000 take 20 s, and want to be done a second before their own.
    assert lead_s([6_000] * 21 + [106_000] + [6_000] * 38) == 22
    # There are 3.4 s to go. What is due before the crowd is armed before it is begun.
    assert lead_s([6_000] * 25 + [106_000] + [6_000] * 34) == 20
    assert lead_s([6_000] * 55 + [106_000] + [6_000] * 4) == 1


def test_a_slow_database_makes_the_lead_longer() -> None:
    forecast = [0] * 30 + [20_000] + [0] * 29
    assert lead_s(forecast, rate=10_000) == 1
    assert lead_s(forecast, rate=1_000) == 31


def test_arming_rests_until_half_of_the_headroom_is_used() -> None:
    # 100,000 take 10 s without a pause.
    assert not look_ahead([0] * 12 + [100_000], 10_000.0, CONFIG).is_hasty
    assert look_ahead([0] * 11 + [100_000], 10_000.0, CONFIG).is_hasty


def test_with_a_short_lead_a_flow_is_armed_before_its_second_begins() -> None:
    short = LeadConfig(least_us=SECOND // 4, headroom=2.0, haste=1.0, first_rate=10_000.0)
    assert look_ahead([6_000] * 60, 10_000.0, short).us == SECOND
    assert look_ahead([0] + [6_000] * 59, 10_000.0, short).us == SECOND // 4
    assert look_ahead([0] + [11_000] * 59, 10_000.0, short).us > SECOND  # faster than it can be


def test_the_rate_follows_the_batches() -> None:
    rate = ArmingRate(CONFIG)
    for batch in range(50):
        rate.measured(1_000, batch * SECOND, batch * SECOND + 50_000)
    assert 19_000 < rate.per_second <= 20_000


def test_batches_that_overlap_count_from_the_end_of_the_one_before() -> None:
    rate = ArmingRate(CONFIG)
    for batch in range(50):
        rate.measured(1_000, batch * 50_000, (batch + 2) * 50_000)
    assert 19_000 < rate.per_second <= 20_000


def test_small_batches_do_not_change_the_rate() -> None:
    rate = ArmingRate(CONFIG)
    rate.measured(3, 0, 50_000)
    assert rate.per_second == 10_000
