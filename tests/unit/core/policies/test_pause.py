"""The due times that a pause records as skipped."""

from uuid import uuid4

import pytest

from wheelsched.core.model import SkipReason
from wheelsched.core.policies.misfire import Skip
from wheelsched.core.policies.pause import paused_over, unarmed_dues
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.spec import Spec

SECOND = 1_000_000
HOUR = 3_600 * SECOND
EVERY = compile_schedule(Spec(kind="every", expression="10s"), uuid4(), 0)


def skip(first_s: int, last_s: int, count: int) -> Skip:
    return Skip(
        reason=SkipReason.PAUSED, count=count, first_us=first_s * SECOND, last_us=last_s * SECOND
    )


@pytest.mark.parametrize(
    ("paused_s", "resumed_s", "withdrawn_s", "missed"),
    [
        (3_601, 3_609, (), None),
        (3_601, 3_610, (), skip(3_610, 3_610, 1)),
        (3_600, 3_645, (), skip(3_610, 3_640, 4)),
        (3_601, 3_645, (3_610, 3_620), skip(3_630, 3_640, 2)),
        (3_601, 3_645, (3_610, 3_620, 3_640), skip(3_630, 3_640, 2)),
        (3_601, 3_645, (3_610, 3_620, 3_630, 3_640), None),
        (3_645, 3_645, (), None),
    ],
)
def test_a_pause_is_one_stretch_of_due_times(
    paused_s: int, resumed_s: int, withdrawn_s: tuple[int, ...], missed: Skip | None
) -> None:
    withdrawn_us = {each * SECOND for each in withdrawn_s}
    assert paused_over(EVERY, paused_s * SECOND, resumed_s * SECOND, withdrawn_us) == missed


def test_a_one_off_that_was_paused_over_its_time() -> None:
    spec = Spec(kind="at", expression="1970-01-01T01:00:00Z")
    once = compile_schedule(spec, uuid4(), 0)
    assert paused_over(once, HOUR - 1, 2 * HOUR, ()) == skip(3_600, 3_600, 1)
    assert paused_over(once, HOUR, 2 * HOUR, ()) is None


@pytest.mark.parametrize(
    ("timer_s", "stopped_s", "known_s", "left"),
    [
        (3_610, 3_609, (), None),
        (3_610, 3_610, (), skip(3_610, 3_610, 1)),
        (3_610, 3_645, (), skip(3_610, 3_640, 4)),
        (3_610, 3_645, (3_610, 3_640), skip(3_620, 3_630, 2)),
        (3_610, 3_645, (3_620,), skip(3_610, 3_640, 4)),
        (3_610, 3_645, (3_620, 3_630, 3_640), skip(3_610, 3_610, 1)),
        (3_610, 3_645, (3_610, 3_620, 3_630, 3_640), None),
        (3_607, 3_609, (), skip(3_607, 3_607, 1)),
        (3_607, 3_625, (), skip(3_607, 3_620, 3)),
        (3_607, 3_625, (3_607,), skip(3_610, 3_620, 2)),
    ],
)
def test_stopping_a_timer_records_the_passed_due_times(
    timer_s: int, stopped_s: int, known_s: tuple[int, ...], left: Skip | None
) -> None:
    """The timer's own due time counts even if the schedule no longer contains it."""
    known_us = {each * SECOND for each in known_s}
    stopped_at_us = stopped_s * SECOND
    found = unarmed_dues(EVERY, timer_s * SECOND, stopped_at_us, SkipReason.PAUSED, known_us)
    assert found == left


def test_a_one_off_whose_timer_is_stopped_after_its_time() -> None:
    once = compile_schedule(Spec(kind="at", expression="1970-01-01T01:00:00Z"), uuid4(), 0)
    assert unarmed_dues(once, HOUR, HOUR - 1, SkipReason.PAUSED) is None
    assert unarmed_dues(once, HOUR, HOUR, SkipReason.PAUSED) == skip(3_600, 3_600, 1)
    assert unarmed_dues(once, HOUR, 2 * HOUR, SkipReason.PAUSED, {HOUR}) is None
