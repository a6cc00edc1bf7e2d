import pytest

from wheelsched.core.offset import (
    DRIFT_PARTS,
    SAMPLES,
    SLEW_PARTS,
    STEP_NS,
    STEP_SAMPLES,
    ClockSample,
    OffsetEstimate,
    Slew,
)

MS = 1_000_000
SECOND = 1_000 * MS
OFFSET_NS = 1_794_837_600 * SECOND


def sample(
    at_s: float, *, offset_ns: int = OFFSET_NS, there_ns: int = MS, back_ns: int = MS
) -> ClockSample:
    sent_ns = int(at_s * SECOND)
    return ClockSample(
        sent_ns=sent_ns,
        database_us=(sent_ns + there_ns + offset_ns) // 1_000,
        received_ns=sent_ns + there_ns + back_ns,
    )


def estimated(*samples: ClockSample) -> OffsetEstimate:
    estimate = OffsetEstimate.of(samples[0].bounds)
    for further in samples[1:]:
        estimate = estimate.after(further)
    return estimate


def error_ns(estimate: OffsetEstimate) -> int:
    """The maximum reported error. Asserts that the true error never exceeds it."""
    error_ns = estimate.error_ns(estimate.bounds.at_ns)
    assert abs(estimate.offset_ns - OFFSET_NS) <= error_ns
    return error_ns


def test_a_symmetric_round_trip_tells_the_offset_to_the_microsecond() -> None:
    assert abs(sample(1).bounds.offset_ns - OFFSET_NS) <= 501


@pytest.mark.parametrize(("there_ns", "back_ns"), [(0, 40 * MS), (40 * MS, 0), (13 * MS, 27 * MS)])
def test_the_error_covers_a_round_trip_spent_on_one_way(there_ns: int, back_ns: int) -> None:
    assert error_ns(estimated(sample(1, there_ns=there_ns, back_ns=back_ns))) < 21 * MS


def test_the_error_grows_with_age_by_the_drift() -> None:
    estimate, bounds = estimated(sample(0)), sample(0).bounds
    grown_ns = estimate.error_ns(bounds.at_ns + 90 * SECOND) - estimate.error_ns(bounds.at_ns)
    assert grown_ns == 90 * SECOND // DRIFT_PARTS == 100 * MS
    assert bounds.widened(bounds.at_ns + 90 * SECOND).high_ns == bounds.high_ns + 100 * MS + 1


def test_a_short_round_trip_outlives_longer_ones() -> None:
    short = sample(2, there_ns=MS // 10, back_ns=MS // 10)
    longer = [sample(2.1), sample(2.2, there_ns=9 * MS)]
    assert error_ns(estimated(sample(1), short, *longer)) < MS // 2
    assert error_ns(estimated(sample(1), *longer)) > MS // 2


def test_a_short_round_trip_gives_way_when_it_is_old() -> None:
    fresh = sample(60)
    estimate = estimated(sample(0, there_ns=MS // 10, back_ns=MS // 10), sample(2), fresh)
    assert estimate.bounds == fresh.bounds


def test_two_that_were_held_up_on_different_ways_tell_it_as_well_as_one_that_was_not() -> None:
    there, back = sample(1, there_ns=20 * MS, back_ns=MS), sample(2, there_ns=MS, back_ns=20 * MS)
    assert error_ns(estimated(there)) > 10 * MS
    assert error_ns(estimated(there, back)) < 4 * MS
    assert error_ns(estimated(back, there)) < 4 * MS


def drifting(parts: float) -> OffsetEstimate:
    """The estimate after 100 s with a fast clock and long delays."""
    ways = [(MS // 10, 8 * MS), (8 * MS, MS // 10), (5 * MS, 5 * MS)]
    return estimated(
        *(
            sample(
                at_s,
                offset_ns=OFFSET_NS + int(at_s * SECOND * parts),
                there_ns=ways[at_s % 3][0],
                back_ns=ways[at_s % 3][1],
            )
            for at_s in range(100)
        )
    )


@pytest.mark.parametrize("direction", [1, -1])
def test_a_clock_that_drifts_as_fast_as_it_may_stays_within_the_error(direction: int) -> None:
    estimate = drifting(0.99 * direction / DRIFT_PARTS)
    true_ns = OFFSET_NS + int(99 * SECOND * 0.99 * direction / DRIFT_PARTS)
    off_ns = abs(estimate.offset_ns - true_ns)
    assert off_ns <= estimate.error_ns(estimate.bounds.at_ns) < 5 * MS


@pytest.mark.parametrize("direction", [1, -1])
def test_one_that_drifts_faster_is_followed_from_close_by(direction: int) -> None:
    estimate = drifting(2 * direction / DRIFT_PARTS)
    true_ns = OFFSET_NS + int(99 * SECOND * 2 * direction / DRIFT_PARTS)
    excess_ns = SAMPLES * SECOND // DRIFT_PARTS
    off_ns = abs(estimate.offset_ns - true_ns)
    assert off_ns <= estimate.error_ns(estimate.bounds.at_ns) + excess_ns


def test_a_single_long_round_trip_moves_nothing() -> None:
    first, long = sample(1), sample(2, there_ns=30 * SECOND, back_ns=30 * SECOND)
    assert estimated(first, long).bounds == first.bounds.widened(long.received_ns)
    assert estimated(first, long).offset_ns == first.bounds.offset_ns


def test_repeatedly_delayed_responses_move_the_estimate_little() -> None:
    """On a busy event loop, most samples are like this."""
    first = sample(1, there_ns=MS // 10, back_ns=MS // 10)
    held_up = [sample(2 + n / 4, there_ns=MS // 10, back_ns=9 * MS) for n in range(40)]
    assert abs(estimated(first, *held_up).offset_ns - OFFSET_NS) < MS // 5


def test_a_shorter_round_trip_takes_the_place_of_a_longer_one_and_of_an_old_one() -> None:
    long, short = sample(1, there_ns=0, back_ns=20 * MS), sample(2)
    assert estimated(long, short).offset_ns == short.bounds.offset_ns
    longer = sample(3, there_ns=MS, back_ns=2 * MS)
    assert estimated(short, longer).offset_ns == short.bounds.offset_ns
    later = sample(40, there_ns=MS, back_ns=2 * MS)
    assert estimated(short, later).offset_ns == later.bounds.offset_ns


@pytest.mark.parametrize("parts", [2e-6, -2e-6, 15e-6, -15e-6])
def test_clocks_of_two_hosts_are_followed_from_the_middle(parts: float) -> None:
    """An estimate that did not age would end at the bound, because of drift."""
    estimate = estimated(
        *(sample(at_s, offset_ns=OFFSET_NS + int(at_s * SECOND * parts)) for at_s in range(1_000))
    )
    true_ns = OFFSET_NS + int(999 * SECOND * parts)
    assert abs(estimate.offset_ns - true_ns) < MS


def test_a_single_wild_reading_moves_nothing() -> None:
    first = sample(1)
    wild = sample(2, offset_ns=OFFSET_NS + 3_600 * SECOND)
    assert estimated(first, wild).bounds == first.bounds
    assert estimated(first, wild, sample(3)) == estimated(first, sample(3))


def test_a_small_move_of_the_databases_clock_is_followed_at_once() -> None:
    moved = sample(2, offset_ns=OFFSET_NS + 50 * MS)
    assert estimated(sample(1), moved).bounds == moved.bounds


@pytest.mark.parametrize("jump_ns", [3_600 * SECOND, -3_600 * SECOND, 2 * STEP_NS, -2 * STEP_NS])
def test_a_large_move_is_followed_when_enough_samples_agree_on_it(jump_ns: int) -> None:
    first = sample(1)
    moved = [sample(at_s, offset_ns=OFFSET_NS + jump_ns) for at_s in range(2, 2 + STEP_SAMPLES)]
    assert estimated(first, *moved[:-1]).offset_ns == first.bounds.offset_ns
    assert abs(estimated(first, *moved).offset_ns - OFFSET_NS - jump_ns) <= 501


def test_readings_that_contradict_each_other_are_not_believed() -> None:
    first = sample(1)
    wild = [sample(at_s, offset_ns=OFFSET_NS + at_s * SECOND) for at_s in range(2, 30)]
    assert estimated(first, *wild).bounds == first.bounds


def test_of_the_samples_after_a_step_the_best_counts() -> None:
    after_ns = OFFSET_NS + SECOND
    long = sample(2, offset_ns=after_ns, there_ns=5 * MS)
    short = sample(3, offset_ns=after_ns, there_ns=0, back_ns=0)
    estimate = estimated(sample(1), long, short, sample(3.2, offset_ns=after_ns))
    assert estimate.bounds == short.bounds


def test_a_correction_is_made_at_a_bounded_rate() -> None:
    slew = Slew.level(OFFSET_NS).toward(OFFSET_NS + 10 * MS, SECOND)
    assert slew.offset_at(SECOND) == OFFSET_NS
    assert slew.left_ns(SECOND) == 10 * MS
    assert slew.offset_at(2 * SECOND) == OFFSET_NS + SECOND // SLEW_PARTS
    assert slew.offset_at(3 * SECOND) == OFFSET_NS + 10 * MS
    assert slew.left_ns(4 * SECOND) == 0


def test_a_correction_begins_where_the_last_one_stands() -> None:
    slew = Slew.level(0).toward(10 * MS, 0).toward(-10 * MS, SECOND)
    assert slew.offset_at(SECOND) == 5 * MS
    assert slew.offset_at(SECOND + 15 * MS * SLEW_PARTS) == -10 * MS
