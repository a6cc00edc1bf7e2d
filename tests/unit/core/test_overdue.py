from wheelsched.core.overdue import Lateness, Unarmed, lateness_of
from wheelsched.values.duration import SECOND

NOW_US = 1_000 * SECOND


def test_the_oldest_of_all_partitions_counts() -> None:
    unarmed = [
        Unarmed(0, NOW_US - 5 * SECOND, None),
        Unarmed(1, NOW_US - 40 * SECOND, NOW_US + SECOND),
        Unarmed(2, None, NOW_US - 7 * SECOND),
    ]
    late = lateness_of(unarmed, NOW_US)
    assert late == Lateness(40 * SECOND, 7 * SECOND)
    assert late.is_alarming
    assert str(late) == (
        "the oldest unarmed timer was due 40 s ago, the oldest unarmed retry was due 7 s ago"
    )


def test_a_future_due_time_is_not_late() -> None:
    late = lateness_of([Unarmed(0, NOW_US + SECOND, NOW_US + 1)], NOW_US)
    assert late == Lateness()
    assert not late.is_alarming
    assert str(late) == "everything that is due is armed"
