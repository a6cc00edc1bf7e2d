"""What was broken when, and how exact a clock was said to be, against a look at each of them."""

from random import Random

from msgspec.structs import replace
from tests.checker.quiet import quiet
from tests.checker.records import ClockError, Fault
from tests.checker.times import BELIEVED_US, CALM_US, ERROR_HOLDS_US, Times

SPAN = 40_000_000


def test_faults_are_those_that_touch_a_span() -> None:
    random = Random(1)
    faults = []
    for _ in range(40):
        from_us = random.randrange(SPAN)
        faults.append(Fault(kind="store", from_us=from_us, until_us=from_us + random.randrange(9)))
    faults.append(Fault(kind="crash", from_us=5, until_us=SPAN))
    times = Times(replace(quiet(), faults=tuple(faults), lives=()))
    for _ in range(400):
        since_us, until_us = sorted(
            random.choice(faults).from_us + random.randint(-9, 9) for _ in range(2)
        )
        touching = [one for one in faults if one.from_us <= until_us and one.until_us >= since_us]
        found = times.faults(since_us, until_us)
        assert sorted(one.from_us for one in found) == sorted(one.from_us for one in touching)
        stores = times.faults(since_us, until_us, ("store",))
        assert len(stores) == sum(one.kind == "store" for one in touching)


def test_the_largest_error_that_was_said_about_then_counts() -> None:
    random = Random(2)
    errors = [
        ClockError(at_us=random.randrange(SPAN), error_us=random.randrange(2 * BELIEVED_US))
        for _ in range(30)
    ]
    slow = Fault(kind="store", from_us=-SPAN, until_us=2 * SPAN)
    told = replace(quiet(), clock_errors=tuple(errors))
    times, calm = Times(replace(told, faults=(slow,))), Times(told)
    edges = [
        one.at_us + sign * ERROR_HOLDS_US + by
        for one in errors
        for sign in (-1, 1)
        for by in (-1, 0, 1)
    ]
    for at_us in (*edges, -SPAN, 2 * SPAN):
        near = [one.error_us for one in errors if abs(one.at_us - at_us) <= ERROR_HOLDS_US]
        assert times.error_us(at_us) == min(max(near, default=0), BELIEVED_US)
        assert calm.error_us(at_us) == min(max(near, default=0), CALM_US)
