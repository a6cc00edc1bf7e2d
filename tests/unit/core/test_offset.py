import pytest

from wheelsched.core.offset import (
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
    estimate = OffsetEstimate(best=samples[0])
    for further in samples[1:]:
        estimate = estimate.after(further)
    return estimate


def test_a_symmetric_round_trip_tells_the_offset_to_the_microsecond() -> None:
    assert abs(sample(1).offset_ns - OFFSET_NS) <= 500


@pytest.mark.parametrize(("there_ns", "back_ns"), [(0, 40 * MS), (40 * MS, 0), (13 * MS, 27 * MS)])
def test_the_error_covers_a_round_trip_spent_on_one_way(there_ns: int, back_ns: int) -> None:
    one = sample(1, there_ns=there_ns, back_ns=back_ns)
    assert abs(one.offset_ns - OFFSET_NS) <= one.error_ns(one.received_ns)
    assert one.error_ns(one.received_ns) < 21 * MS


def test_the_error_grows_with_age_by_the_drift() -> None:
    one = sample(0)
    grown_ns = one.error_ns(one.received_ns + 60 * SECOND) - one.error_ns(one.received_ns)
    assert grown_ns == 30 * MS


def test_the_shortest_round_trip_wins() -> None:
    short = sample(2, there_ns=MS // 10, back_ns=MS // 10)
    assert estimated(sample(1), short, sample(3), sample(4, there_ns=9 * MS)).best == short


def test_a_short_round_trip_gives_way_when_it_is_old() -> None:
    short = sample(0, there_ns=MS // 10, back_ns=MS // 10)
    fresh = sample(60)
    assert estimated(short, sample(2), fresh).best == fresh


def test_a_single_long_round_trip_moves_nothing() -> None:
    first = sample(1)
    for there_ns, back_ns in ((30 * SECOND, 0), (0, 30 * SECOND)):
        estimate = estimated(first, sample(2, there_ns=there_ns, back_ns=back_ns))
        assert estimate == OffsetEstimate(best=first)


def test_a_single_wild_reading_moves_nothing() -> None:
    first = sample(1)
    wild = sample(2, offset_ns=OFFSET_NS + 3_600 * SECOND)
    assert estimated(first, wild).best == first
    assert estimated(first, wild, sample(3)) == estimated(first, sample(3))


def test_a_small_move_of_the_databases_clock_is_followed_at_once() -> None:
    moved = sample(2, offset_ns=OFFSET_NS + 50 * MS)
    assert estimated(sample(1), moved).best == moved


@pytest.mark.parametrize("jump_ns", [3_600 * SECOND, -3_600 * SECOND, 2 * STEP_NS, -2 * STEP_NS])
def test_a_large_move_is_followed_when_enough_samples_agree_on_it(jump_ns: int) -> None:
    first = sample(1)
    moved = [sample(at_s, offset_ns=OFFSET_NS + jump_ns) for at_s in range(2, 2 + STEP_SAMPLES)]
    assert estimated(first, *moved[:-1]).best == first
    assert abs(estimated(first, *moved).best.offset_ns - OFFSET_NS - jump_ns) <= 500


def test_readings_that_contradict_each_other_are_not_believed() -> None:
    first = sample(1)
    wild = [sample(at_s, offset_ns=OFFSET_NS + at_s * SECOND) for at_s in range(2, 30)]
    assert estimated(first, *wild).best == first


def test_of_the_samples_after_a_step_the_best_counts() -> None:
    after_ns = OFFSET_NS + SECOND
    long = sample(2, offset_ns=after_ns, there_ns=5 * MS)
    short = sample(3, offset_ns=after_ns, there_ns=0, back_ns=0)
    assert estimated(sample(1), long, short, sample(4, offset_ns=after_ns)).best == short


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
